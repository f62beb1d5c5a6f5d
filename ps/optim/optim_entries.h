/* The entries of the optimizer table, one file each. Only optim.c and their tests look here. */
#ifndef PS_OPTIM_OPTIM_ENTRIES_H
#define PS_OPTIM_OPTIM_ENTRIES_H

#include "ps/optim/optim.h"

extern const ps_optim_t ps_optim_sgd;
extern const ps_optim_t ps_optim_momentum;
extern const ps_optim_t ps_optim_nesterov;
extern const ps_optim_t ps_optim_adagrad;
extern const ps_optim_t ps_optim_rowwise_adagrad;
extern const ps_optim_t ps_optim_rmsprop;
extern const ps_optim_t ps_optim_adam;
extern const ps_optim_t ps_optim_partial_rowwise_adam;
extern const ps_optim_t ps_optim_adamw;
extern const ps_optim_t ps_optim_ftrl;

#endif
