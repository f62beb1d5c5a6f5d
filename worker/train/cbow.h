/*
 * CBOW: the mean of the context words predicts the centre word. Source: Mikolov et al. 2013,
 * "Efficient estimation of word representations in vector space".
 */
#ifndef WORKER_TRAIN_CBOW_H
#define WORKER_TRAIN_CBOW_H

#include "worker/train/model.h"

extern const psw_model_t psw_cbow;

#endif
