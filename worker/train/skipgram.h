/*
 * Skip-gram: each context word predicts the centre word. Source: Mikolov et al. 2013, "Efficient
 * estimation of word representations in vector space"; matrix form: Ji et al. 2016.
 */
#ifndef WORKER_TRAIN_SKIPGRAM_H
#define WORKER_TRAIN_SKIPGRAM_H

#include "worker/train/model.h"

extern const psw_model_t psw_skipgram;

#endif
