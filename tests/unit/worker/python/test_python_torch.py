#!/usr/bin/env python3
"""embps.torch beside torch.nn: the same model, data and seed have the same losses, rows and gradients."""

import copy
import gc
import inspect
import pathlib
import pickle
import sys
import unittest
import weakref
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "support"))
import python_tests  # noqa: E402

python_tests.need("numpy", "torch")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import embps  # noqa: E402
import embps.torch  # noqa: E402
import embps.torch.rows  # noqa: E402

WORDS, DIM = 50, 6


class Case(python_tests.Case):
    def setUp(self):
        super().setUp()
        self.seed = python_tests.seed()
        torch.manual_seed(self.seed)
        torch.set_num_threads(1)
        self.client = self.connect()
        self.tables = 0

    def ours(self, plain, **options):
        """The module of embps.torch with the arguments and the rows of a torch.nn one."""
        kind = {nn.Embedding: embps.torch.Embedding, nn.EmbeddingBag: embps.torch.EmbeddingBag}[type(plain)]
        names = ["padding_idx", "max_norm", "norm_type", "scale_grad_by_freq"]
        if isinstance(plain, nn.EmbeddingBag):
            names += ["mode", "include_last_offset"]
        self.tables += 1
        return kind.from_pretrained(plain, freeze=False, client=self.client, name=f"table {self.tables}",
                                    **{name: getattr(plain, name) for name in names}, **options)

    def assert_close(self, ours, plain, tolerance=1e-5):
        torch.testing.assert_close(ours, plain.detach() if isinstance(plain, torch.Tensor) else plain,
                                   rtol=tolerance, atol=tolerance)

    def assert_same_gradient(self, ours, plain):
        """The gradient that is collected is the dense one of torch.nn, rows without any left out."""
        dense = plain.weight.grad.to_dense() if plain.weight.grad.is_sparse else plain.weight.grad
        collected = torch.zeros_like(dense)
        if ours.rows.gradient() is not None:
            ids, grad = ours.rows.gradient()
            collected[ids] = grad
        self.assert_close(collected, dense)


class Classifier(nn.Module):
    """The mean of the words' rows, and a layer on it."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.out = nn.Linear(DIM, 4)

    def forward(self, words):
        return self.out(torch.tanh(self.embedding(words)).mean(1))


class Training(Case):
    """200 steps of the same model, once with its rows in torch.nn and once in a table."""

    PLAIN = {"sgd": lambda weights, rate: torch.optim.SGD(weights, lr=rate),
             "adagrad": lambda weights, rate: torch.optim.Adagrad(weights, lr=rate),
             "adam": lambda weights, rate: torch.optim.SparseAdam(weights, lr=rate)}

    def losses(self, model, batches, optimizers, after_backward=None, schedulers=()):
        losses = []
        for words, labels in batches:
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(words), labels)
            loss.backward()
            if after_backward is not None:
                after_backward(model)
            for step in (*optimizers, *schedulers):
                step.step()
            losses.append(loss.item())
        return losses

    def both(self, name, rate, n_steps=200, after_backward=None, schedule=None, sparse=True):
        """Losses with torch.nn and with a table, and both embeddings."""
        plain = Classifier(nn.Embedding(WORDS, DIM, sparse=sparse))
        ours = Classifier(self.ours(plain.embedding, optimizer=name))
        ours.out.load_state_dict(plain.out.state_dict())
        # Zipf's law: some words in each batch, some in few.
        words = (WORDS ** torch.rand(n_steps, 8, 5) - 1).long()
        batches = list(zip(words, torch.randint(0, 4, (n_steps, 8))))
        dense, tables = embps.torch.split_parameters(ours)
        rows = (self.PLAIN[name](plain.embedding.parameters(), rate), embps.torch.Optimizer(tables, rate))
        result = []
        for model, parameters, optimizer in ((plain, plain.out.parameters(), rows[0]), (ours, dense, rows[1])):
            optimizers = (torch.optim.Adam(parameters, 0.01), optimizer)
            schedulers = [schedule(each) for each in optimizers] if schedule else ()
            result.append(self.losses(model, batches, optimizers, after_backward, schedulers))
        return *result, plain.embedding, ours.embedding

    def assert_equal_training(self, *arguments, **options):
        plain_losses, losses, plain, ours = self.both(*arguments, **options)
        self.assertLess(max(abs(a - b) for a, b in zip(plain_losses, losses)), 1e-5)
        self.assertNotAlmostEqual(losses[0], losses[-1], 3)
        self.assert_close(ours.dense(), plain.weight)

    def test_sgd_has_the_losses_of_torch(self):
        self.assert_equal_training("sgd", 0.5)

    def test_adagrad_has_the_losses_of_torch(self):
        self.assert_equal_training("adagrad", 0.1)

    def test_adam_has_the_losses_of_sparse_adam(self):
        self.assert_equal_training("adam", 0.02)

    def test_schedulers_change_the_rate(self):
        self.assert_equal_training("sgd", 0.5, 60, schedule=lambda optimizer:
                                   torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50))

    def test_gradients_are_clipped_with_those_of_other_layers(self):
        norms = []  # torch.nn without sparse: PyTorch 1.13 leaves sparse gradients as they are
        self.assert_equal_training("sgd", 0.5, 60, sparse=False, after_backward=lambda model: norms.append(
            nn.utils.clip_grad_norm_(model.parameters(), 0.05).item()))
        self.assertTrue(all(norm > 0.05 for norm in norms))
        self.assert_close(norms[60:], norms[:60])

    def test_prefetched_batches_bring_the_same_rows(self):
        plain = nn.Embedding(WORDS, DIM, sparse=True)
        ours = self.ours(plain)
        optimizers = (torch.optim.SGD(plain.parameters(), 0.5), embps.torch.Optimizer(ours.parameters(), 0.5))
        batches = torch.randint(0, WORDS, (30, 7))
        pulls = self.client.stats()["client.pulls"]
        for at, words in enumerate(batches):
            outs = []
            for optimizer, embedding in zip(optimizers, (plain, ours)):
                optimizer.zero_grad()
                out = embedding(words)
                outs.append(out.detach())
                if embedding is ours and at + 1 < len(batches):
                    ours.prefetch(batches[at + 1])
                (out ** 2).sum().backward()
                optimizer.step()
            self.assert_close(*outs)
        # One pull a batch, and one of rows that were pushed since.
        self.assertLessEqual(self.client.stats()["client.pulls"] - pulls, 2 * len(batches) - 1)
        self.assertEqual(ours.rows._ahead, [])


class Gradients(Case):
    def setUp(self):
        super().setUp()
        self.plain = nn.Embedding(WORDS, DIM, sparse=True)
        self.embedding = self.ours(self.plain)
        self.optimizers = (torch.optim.SGD(self.plain.parameters(), 0.5),
                           embps.torch.Optimizer(self.embedding.parameters(), 0.5))

    def backward(self, words, factor=1.0):
        weights = torch.rand(*words.shape, DIM)
        for embedding in (self.plain, self.embedding):
            (embedding(words) * weights).sum().mul(factor).backward()

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()
        self.assert_close(self.embedding.dense(), self.plain.weight)

    def test_several_passes_add_up_to_one_step(self):
        for _ in range(3):
            self.backward(torch.randint(0, WORDS, (4, 3)))
            self.assert_same_gradient(self.embedding, self.plain)
        self.step()
        self.step()  # without zero_grad: once more the same
        self.backward(torch.tensor([[1, 2]]))
        self.step()

    def test_one_table_may_be_used_twice_in_one_graph(self):
        one, two = torch.tensor([1, 2, 3]), torch.tensor([3, 4])
        for embedding in (self.plain, self.embedding):
            (embedding(one).sum() * embedding(two).sum()).backward()
        self.assert_same_gradient(self.embedding, self.plain)
        self.step()

    def test_zero_grad_forgets_in_both_its_ways(self):
        for set_to_none in (True, False):
            self.backward(torch.tensor([1, 2]))
            for each in (self.plain, self.embedding):
                each.zero_grad(set_to_none=set_to_none)
            before = self.embedding.dense()
            self.optimizers[1].step()
            self.assertTrue(torch.equal(self.embedding.dense(), before))
            self.backward(torch.tensor([2, 3]))
            self.assertEqual(self.embedding.rows.gradient()[0].tolist(), [2, 3])
            self.step()
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=set_to_none)

    def test_a_gradient_of_zeros_is_a_step_as_any_other(self):
        words = torch.arange(WORDS)  # all of them: momentum moves every row of torch.nn's
        for name, kind, arguments in (("adam", torch.optim.SparseAdam, {}), ("adagrad", torch.optim.Adagrad, {}),
                                      (("momentum", 0.9), torch.optim.SGD, {"momentum": 0.9})):
            plain = nn.Embedding(WORDS, DIM, sparse=kind is torch.optim.SparseAdam)
            ours = self.ours(plain, optimizer=name)
            optimizers = kind(plain.parameters(), lr=0.1, **arguments), embps.torch.Optimizer(ours.parameters(), 0.1)
            weights = torch.rand(WORDS, DIM)
            for factor in (1, 0, 0, 1, None, 0, 1):
                for optimizer, embedding in zip(optimizers, (plain, ours)):
                    # in both its ways, and without a pass behind it, which SparseAdam counts as a step of no row
                    optimizer.zero_grad(set_to_none=factor == 0 or kind is not torch.optim.SparseAdam)
                    if factor is not None:
                        (embedding(words) * weights * factor).sum().backward()
                        nn.utils.clip_grad_norm_(ours.parameters(), 1e6)  # writes to it
                    optimizer.step()
                self.assert_close(ours.dense(), plain.weight)

    def test_modules_on_one_table_make_one_step_of_their_sum(self):
        for name, kind in (("adam", torch.optim.SparseAdam), ("sgd", torch.optim.SGD)):
            plain = nn.Embedding(WORDS, DIM, sparse=name == "adam")
            first = self.ours(plain, optimizer=name)
            modules = [first, embps.torch.Embedding(WORDS, DIM, padding_idx=0, table=first.table),
                       embps.torch.EmbeddingBag(WORDS, DIM, mode="sum", client=self.client, name=first.table.name,
                                                optimizer=name)]
            parameters = [module.weight for module in modules]
            optimizers = (kind(plain.parameters(), 0.1), embps.torch.Optimizer(
                [{"params": parameters[:2]}, {"params": parameters[2:]}], 0.1))
            for step in range(4):
                words = torch.randint(1, WORDS, (3, 4, 5))
                used = ((0, 1, 2), (1, 2), (2,), (0,))[step]  # some rest in a step
                for optimizer in optimizers:
                    optimizer.zero_grad()
                for at in used:
                    for embedding in (plain, modules[at]):
                        out = embedding(words[at])
                        if at == 2 and embedding is plain:
                            out = out.sum(1)  # the bags
                        (out ** 2 * (at + 1)).sum().backward()
                optimizers[1].synchronize()
                norms = []
                if name == "sgd":
                    norms = [nn.utils.clip_grad_norm_(each, 0.5) for each in (plain.parameters(), parameters)]
                for optimizer in optimizers:
                    optimizer.step()
                self.assertEqual([norm for norm in norms if abs(norm - norms[0]) > 1e-4 * norms[0]], [])
                self.assert_close(first.dense(), plain.weight)
            optimizers[1].param_groups[1]["lr"] = 0.2
            with self.assertRaisesRegex(ValueError, f"^lr: .*'{first.table.name}'.* rates 0.1, 0.1, 0.2"):
                optimizers[1].step()

    def test_nothing_is_sent_where_one_table_has_a_gradient_that_is_not_finite(self):
        other = self.ours(nn.Embedding(WORDS, DIM))
        before = self.embedding.dense()
        optimizer = embps.torch.Optimizer([self.embedding.weight, other.weight], 0.5)
        self.embedding(torch.tensor([1])).sum().backward()
        (other(torch.tensor([2, 7])) * torch.tensor([[1.0], [float("nan")]])).sum().backward()
        with self.assertRaisesRegex(embps.InvalidArgument, f"row 7 of the table '{other.table.name}'") as caught:
            optimizer.step()
        self.assertEqual(caught.exception.row_id, 7)
        self.assertTrue(torch.equal(self.embedding.dense(), before))
        self.assertEqual(len(optimizer.state), 0)

    def test_options_of_groups_that_are_the_tables_are_refused_and_optimizers_are_not_copied(self):
        for name, given in (("weight_decay", 0.1), ("momentum", 0.9), ("betas", (0.9, 0.99)), ("eps", 1e-8),
                            ("nesterov", True)):
            with self.assertRaisesRegex(ValueError, f"^{name}: .*table.*l2="):
                embps.torch.Optimizer([{"params": [self.embedding.weight], name: given}], 0.1)
        optimizer = embps.torch.Optimizer([{"params": [self.embedding.weight], "weight_decay": 0.0, "nesterov": False,
                                            "name": "rows"}], 0.1)
        for copies in (copy.deepcopy, copy.copy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "state_dict"):
                copies(optimizer)

    def test_scaled_gradients_are_unscaled_in_place_and_may_be_skipped(self):
        # GradScaler's own steps, which it makes on GPUs alone in PyTorch 1.13.
        self.backward(torch.tensor([1, 2]), factor=2.0**16)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad.mul_(2.0**-16)
        self.step()
        self.optimizers[1].zero_grad()
        before = self.embedding.dense()
        self.embedding(torch.tensor([1])).sum().mul(float("inf")).backward()
        self.assertFalse(torch.isfinite(self.embedding.weight.grad).all())
        self.assertRaises(embps.InvalidArgument, self.optimizers[1].step)
        self.optimizers[1].zero_grad()
        self.assertTrue(torch.equal(self.embedding.dense(), before))
        scaler = torch.cuda.amp.GradScaler(enabled=False)
        scaler.scale(self.embedding(torch.tensor([1])).sum()).backward()
        scaler.unscale_(self.optimizers[1])
        scaler.step(self.optimizers[1])
        scaler.update()
        self.assert_close(self.embedding.dense()[1], before[1] - 0.5)

    def test_groups_have_rates_of_their_own_and_closures_are_called(self):
        other = self.ours(nn.Embedding(WORDS, DIM))
        optimizer = embps.torch.Optimizer([{"params": self.embedding.parameters()},
                                           {"params": other.parameters(), "lr": 0.25}], 1.0)
        before = self.embedding.dense(), other.dense()

        def closure():
            loss = self.embedding(torch.tensor([3])).sum() + other(torch.tensor([3])).sum()
            loss.backward()
            return loss
        self.assertIsInstance(optimizer.step(closure), torch.Tensor)
        self.assert_close(self.embedding.dense()[3], before[0][3] - 1.0)
        self.assert_close(other.dense()[3], before[1][3] - 0.25)
        again = embps.torch.Optimizer([{"params": self.embedding.parameters()},
                                       {"params": other.parameters()}], 5.0)
        again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        self.assertEqual([group["lr"] for group in again.param_groups], [1.0, 0.25])
        self.assertEqual(again.state[self.embedding.weight]["step"], 1)

    def test_optimizers_of_the_wrong_kind_fail(self):
        with self.assertRaisesRegex(ValueError, "split_parameters"):
            embps.torch.Optimizer(self.plain.parameters(), 1)
        self.assertRaises(ValueError, embps.torch.Optimizer, self.embedding.parameters(), -1)
        for rate in (float("nan"), "fast", None):
            with self.assertRaisesRegex(ValueError, "^lr: "):
                embps.torch.Optimizer(self.embedding.parameters(), rate)
        optimizer = embps.torch.Optimizer([{"params": []}], 0.1)
        for rate in (-1, float("nan")):
            group = {"params": list(self.embedding.parameters()), "lr": rate}
            for add in (optimizer.add_param_group, lambda group: embps.torch.Optimizer([group], 0.1)):
                with self.assertRaisesRegex(ValueError, "^lr: "):
                    add(group)
        self.assertEqual(len(optimizer.param_groups), 1)
        model = Classifier(self.embedding)
        for step in range(2):  # before the first gradient and after
            for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad,
                         torch.optim.RMSprop, torch.optim.SparseAdam, torch.optim.LBFGS):
                for parameters in (model.parameters(), [{"params": list(model.parameters())}]):
                    if kind in (torch.optim.SparseAdam, torch.optim.LBFGS):  # these want a list
                        parameters = list(model.parameters())
                    with self.assertRaisesRegex(ValueError, f"^{kind.__name__} .*'table 1'.*"
                                                            "embps.torch.Optimizer,.*split_parameters"):
                        kind(parameters, lr=0.1)
            self.backward(torch.tensor([1, 2]))
        before = self.embedding.dense()
        dense, tables = embps.torch.split_parameters(model)
        self.assertEqual((len(dense), [id(table) for table in tables]), (2, [id(self.embedding.weight)]))
        for optimizer in (torch.optim.SGD(dense, 0.1), embps.torch.Optimizer(tables, 0.1)):
            optimizer.step()
        self.assertFalse(torch.equal(self.embedding.dense(), before))
        self.assertTrue(self.embedding.weight.is_leaf)

    def test_batches_that_were_asked_for_and_not_used_keep_nothing_of_later_steps(self):
        self.embedding.prefetch(torch.tensor([1, 2, 3]))
        ids = torch.tensor([2, 9])
        pushed = weakref.ref(ids)
        self.embedding.rows.assign(ids, torch.ones(2, DIM))
        del ids
        gc.collect()
        self.assertIsNone(pushed())
        rows = self.embedding.rows.pull(torch.tensor([1, 2, 3]))
        self.assert_close(rows[1], torch.ones(DIM))
        self.assert_close(rows[::2], self.plain.weight[1:4:2])

    def test_batches_that_were_asked_for_are_read_again_whoever_changed_their_rows(self):
        table, ids = self.embedding.table, torch.tensor([1, 2, 3])
        other = embps.torch.Embedding(WORDS, DIM, table=table)
        again = self.client.table(table.name, DIM, init=("normal", 0, 1))  # the same one
        optimizer = embps.torch.Optimizer(other.parameters(), 0.5)

        def step():
            other(ids[:2]).sum().backward()
            optimizer.step()
        ones = np.ones((2, DIM), dtype=np.float32)
        for change in (step, lambda: table.push([1, 2], ones, 0.5), lambda: again.push_async([2, 3], ones, 0.5).result(),
                       lambda: table.push_delta([3, 2**64 - 1], ones), lambda: again.assign([[1, 2]], ones[None]),
                       lambda: table.import_rows([1, 3], 3 * ones), lambda: other.load(self.plain)):
            before = self.embedding.dense()
            with torch.inference_mode():
                self.embedding.prefetch(ids)
            change()
            rows = self.embedding(ids)
            self.assert_close(rows.detach(), self.embedding.dense()[ids])
            self.assertFalse(torch.equal(self.embedding.dense(), before))
            (rows * rows).sum().backward()  # though they were asked for in inference_mode

    def test_frozen_rows_and_no_grad_collect_nothing(self):
        with torch.no_grad():
            self.assertFalse(self.embedding(torch.tensor([1])).requires_grad)
        self.embedding.weight.requires_grad_(False)
        self.assertFalse(self.embedding(torch.tensor([1])).requires_grad)
        frozen = embps.torch.Embedding.from_pretrained(self.plain.weight.detach(), table=self.embedding.table)
        self.assertFalse(frozen.weight.requires_grad)
        self.assertIsNone(self.embedding.rows.gradient())


class Modules(Case):
    def compare(self, plain, *inputs, **options):
        """Output, gradient and rows of one step."""
        ours = self.ours(plain, **options)
        outs = [module(*inputs) for module in (plain, ours)]
        self.assert_close(outs[1].detach(), outs[0])
        self.assertEqual(outs[0].shape, outs[1].shape)
        weights = torch.rand_like(outs[0])
        for out in outs:
            (out * weights).sum().backward()
        self.assert_same_gradient(ours, plain)
        self.assert_close(ours.dense(), plain.weight)
        return ours

    def test_embedding_is_as_torch_has_it(self):
        words = torch.randint(0, WORDS, (3, 4))
        for arguments in ({}, {"padding_idx": int(words[0, 0])}, {"padding_idx": -1}, {"max_norm": 1.5},
                          {"max_norm": 2.0, "norm_type": 1.0}, {"scale_grad_by_freq": True}):
            with self.subTest(**arguments):
                self.compare(nn.Embedding(WORDS, DIM, **arguments), words)
                self.compare(nn.Embedding(WORDS, DIM, **arguments), words[0, 0])
                self.compare(nn.Embedding(WORDS, DIM, **arguments), words.int())
        ours = self.ours(nn.Embedding(WORDS, DIM))
        self.assertEqual(ours(torch.empty(2, 0, dtype=torch.int64)).shape, (2, 0, DIM))

    def test_bags_are_as_torch_has_them(self):
        words = torch.randint(0, WORDS, (4, 5))
        flat, offsets = torch.randint(0, WORDS, (9,)), torch.tensor([0, 3, 3, 7])
        for mode in ("sum", "mean", "max"):
            for arguments in ({}, {"padding_idx": int(words[0, 0])}, {"max_norm": 1.5},
                              {"include_last_offset": True}):
                with self.subTest(mode=mode, **arguments):
                    make = lambda: nn.EmbeddingBag(WORDS, DIM, mode=mode, **arguments)  # noqa: E731
                    last = [9] if "include_last_offset" in arguments else []
                    if not last:  # PyTorch 1.13 reads past its memory for this with two dimensions
                        self.compare(make(), words)
                    self.compare(make(), flat, torch.cat([offsets, torch.tensor(last, dtype=torch.int64)]))
        ours = self.ours(nn.EmbeddingBag(WORDS, DIM, mode="sum"))
        self.assertEqual(ours(flat[:0], offsets[:1]).tolist(), [[0] * DIM])

    def test_bags_of_weighted_rows_are_as_torch_has_them(self):
        flat, offsets = torch.randint(0, WORDS, (9,)), torch.tensor([0, 3, 3, 7])
        plain_weights = torch.rand(9, requires_grad=True)
        our_weights = plain_weights.detach().clone().requires_grad_()
        plain = nn.EmbeddingBag(WORDS, DIM, mode="sum")
        ours = self.ours(plain)
        for module, weights in ((plain, plain_weights), (ours, our_weights)):
            (module(flat, offsets, weights) ** 2).sum().backward()
        self.assert_same_gradient(ours, plain)
        self.assert_close(our_weights.grad, plain_weights.grad)

    def test_a_tied_head_shares_rows_and_gradients(self):
        words, labels = torch.randint(0, WORDS, (8,)), torch.randint(0, WORDS, (8,))
        plain = nn.Embedding(WORDS, DIM)
        ours = self.ours(plain, scale_by_sqrt_dim=True)
        head = embps.torch.TiedLinear(ours, bias=True)
        bias = torch.zeros(WORDS, requires_grad=True)
        optimizers = (torch.optim.SGD(plain.parameters(), 0.3), embps.torch.Optimizer(ours.parameters(), 0.3))
        for _ in range(5):
            scores = (plain(words) * DIM**0.5 @ plain.weight.t() + bias, head(ours(words)))
            self.assert_close(scores[1].detach(), scores[0])
            for out, optimizer in zip(scores, optimizers):
                optimizer.zero_grad()
                nn.functional.cross_entropy(out, labels).backward()
                optimizer.step()
        self.assert_close(head.bias.grad, bias.grad)
        some = torch.tensor([7, 3, 9])
        self.assert_close(head(torch.eye(DIM), some).detach(), plain.weight[some].t())
        self.assertEqual([name for name, _ in head.named_parameters()], ["bias"])

    def test_ids_that_cannot_be_are_refused(self):
        ours = self.ours(nn.Embedding(WORDS, DIM))
        for words in ([WORDS], [-1]):
            self.assertRaises(IndexError, ours, torch.tensor(words))
        for call in (ours, ours.prefetch, lambda ids: ours.head(torch.eye(DIM), ids)):
            for words, said in ((torch.tensor([1.0]), "torch.float32"), ([1, 2], "list"), (np.array([1]), "ndarray"),
                                (1, "int")):
                with self.assertRaisesRegex(TypeError, f"^ids are .* {said}$"):
                    call(words)
        for ids in (torch.tensor([1, 1]), torch.tensor([[1, 2]]), torch.tensor(1)):
            with self.assertRaisesRegex(ValueError, "distinct"):
                ours.head(torch.eye(DIM), ids)
        bags = self.ours(nn.EmbeddingBag(WORDS, DIM))
        for offsets in ([0, 1], torch.tensor([0.0, 1.5])):
            with self.assertRaisesRegex(TypeError, "^offsets "):
                bags(torch.tensor([1, 2]), offsets)
        table = self.client.table("any", DIM, init=("constant", 2))
        without_end = embps.torch.Embedding(None, DIM, table=table)
        self.assertTrue((without_end(torch.tensor([2**62, 0])) == 2).all())
        self.assertRaises(ValueError, without_end.dense)
        for arguments in ({}, {"client": self.client}, {"table": table, "seed": 3}, {"name": "x"},
                          {"table": self.client.table("narrow", 2)},
                          {"table": table, "client": self.client, "name": "x"}):
            self.assertRaises(ValueError, embps.torch.Embedding, 5, DIM, **arguments)
        for arguments in ({"padding_idx": 5}, {"padding_idx": -6}):
            self.assertRaises(ValueError, embps.torch.Embedding, 5, DIM, table=table, **arguments)
        for name, values in (("num_embeddings", (0, -1, 1.5, "5", True, 2**63 + 1)), ("padding_idx", (1.5, "1", True)),
                             ("embedding_dim", (DIM + 1, str(DIM))), ("max_norm", (-1.0, float("nan"), "1")),
                             ("norm_type", (0, -2.0, None))):
            for value in values:
                with self.assertRaisesRegex(ValueError, f"^{name}", msg=repr(value)):
                    embps.torch.Embedding(**{"num_embeddings": 5, "embedding_dim": DIM, name: value}, table=table)
        for name, arguments in (("table", {"table": 5}), ("client", {"client": 5, "name": "x"}),
                                ("name", {"client": self.client, "name": 5})):
            with self.assertRaisesRegex(ValueError, f"^{name}: "):
                embps.torch.EmbeddingBag(5, DIM, **arguments)

    def test_weight_stays_what_stands_for_the_table(self):
        ours = self.ours(nn.Embedding(WORDS, DIM))
        ours.weight = ours.weight
        for other in (nn.Parameter(torch.ones(WORDS, DIM)), None, self.ours(nn.Embedding(WORDS, DIM)).weight):
            with self.assertRaisesRegex(TypeError, "weight stands for the table 'table 1'"):
                ours.weight = other
        self.assertIs(ours.weight, ours.rows.parameter)

    def test_what_reads_or_writes_weight_as_if_it_held_rows_is_told_what_does(self):
        ours = self.ours(nn.Embedding(WORDS, DIM))
        before, linear = ours.dense(), nn.Linear(DIM, WORDS)

        def assign_data(rows):
            ours.weight.data = rows

        def tie():
            linear.weight = ours.weight
            linear(torch.ones(1, DIM))
        for step in range(2):  # before there is a gradient and after
            weight = ours.weight
            for call in (lambda: nn.init.normal_(weight), lambda: nn.init.xavier_uniform_(weight), lambda: nn.init.zeros_(weight),
                         lambda: weight.data.uniform_(), lambda: weight.data.clone(), weight.clone, weight.norm,
                         lambda: assign_data(torch.ones(WORDS, DIM)), lambda: assign_data(weight.grad), tie,
                         lambda: sum(p.pow(2).sum() for p in ours.parameters()), lambda: torch.norm(weight),
                         lambda: weight * 2, lambda: 2 * weight, lambda: weight[1], lambda: weight == weight, weight.detach,
                         lambda: weight.copy_(before), lambda: weight.T, weight.t, weight.numpy, weight.tolist,
                         weight.cpu, lambda: np.asarray(weight), lambda: torch.cat([before, weight]), weight.sum,
                         lambda: nn.functional.embedding(torch.tensor([1]), weight),
                         lambda: nn.utils.parameters_to_vector(ours.parameters())):
                with self.assertRaisesRegex(RuntimeError, "'table 1'.*dense.*load.*init=.*TiedLinear.*l2="):
                    call()
            for add in (weight.register_hook, getattr(weight, "register_post_accumulate_grad_hook", weight.register_hook)):
                with self.assertRaisesRegex(RuntimeError, "'table 1'.*never be called.*weight.grad"):
                    add(lambda grad: grad)
            for copies in (copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, "'table 1'.*cannot be copied"):
                    copies(weight)
            self.assertRegex(repr(weight), "table 'table 1'")
            ours(torch.tensor([1, 2])).sum().backward()
        self.assertTrue(torch.equal(ours.dense(), before))
        # What programs do with all parameters of a model.
        for name, parameter in ours.named_parameters():
            self.assertEqual((name, parameter.device.type, parameter.dim(), parameter.is_floating_point()),
                             ("weight", "cpu", 2, True))
            self.assertEqual(parameter.numel(), 2 * DIM)
            self.assertIn(parameter, {parameter})
            self.assertTrue(torch.equal(copy.deepcopy(parameter.grad), parameter.grad))
        for same in (ours.double(), ours.to("cpu"), ours.float(), ours.share_memory(), ours.requires_grad_(True)):
            self.assertTrue(torch.equal(same.weight.grad, torch.full((2, DIM), 2.0)))
        embps.torch.Optimizer(ours.parameters(), 1.0).step()
        self.assert_close(ours.dense()[1], before[1] - 2)

    def test_what_has_no_rows_is_refused(self):
        plain = nn.Embedding(WORDS, DIM)
        ours = self.ours(plain)
        for load in (ours.load, lambda source: embps.torch.Embedding.from_pretrained(source, table=ours.table)):
            for source in ("x", None, object(), nn.ReLU(), ours, torch.zeros(WORDS, DIM, dtype=torch.complex64),
                           torch.zeros(DIM)):
                with self.assertRaisesRegex(ValueError, "^rows"):
                    load(source)
            for value in (float("nan"), float("inf"), 1e300):
                rows = torch.zeros(WORDS, DIM, dtype=torch.float64)
                rows[WORDS - 1, 2] = value
                with mock.patch.object(embps.torch.rows, "CHUNK_FLOATS", 7 * DIM):
                    with self.assertRaisesRegex(embps.InvalidArgument, f"^load: row {WORDS - 1} ") as caught:
                        load(rows)
                self.assertEqual(caught.exception.row_id, WORDS - 1)
        self.assertTrue(torch.equal(ours.dense(), plain.weight))
        for embedding in (plain, None, self.ours(nn.EmbeddingBag(WORDS, DIM))):
            with self.assertRaisesRegex(ValueError, "^embedding: .* is no embps.torch.Embedding"):
                embps.torch.TiedLinear(embedding)

    def test_new_rows_are_normal_and_the_pad_row_is_zeros(self):
        ours = embps.torch.Embedding(4000, DIM, padding_idx=3, client=self.client, name="new")
        rows = ours.dense()
        self.assertEqual(rows[3].tolist(), [0] * DIM)
        self.assertLess(abs(rows.mean().item()), 0.05)
        self.assertLess(abs(rows.std().item() - 1), 0.05)

    def test_rows_for_a_gpu_wait_in_pinned_memory(self):
        empty = torch.empty
        with mock.patch.object(embps.torch.rows.torch, "empty") as patched:
            patched.side_effect = lambda *shape, pin_memory, **other: empty(*shape, **other)
            self.assertEqual(embps.torch.rows.host_memory(3, 2, torch.device("cuda", 1)).shape, (3, 2))
            self.assertTrue(patched.call_args.kwargs["pin_memory"])
            embps.torch.rows.host_memory(3, 2, torch.device("cpu"))
            self.assertFalse(patched.call_args.kwargs["pin_memory"])

    def test_halves_come_out_where_the_module_is_half(self):
        ours = self.ours(nn.Embedding(WORDS, DIM)).to(torch.bfloat16)
        out = ours(torch.tensor([1, 2]))
        self.assertEqual(out.dtype, torch.bfloat16)
        out.sum().backward()
        self.assertEqual(ours.weight.grad.dtype, torch.bfloat16)
        before = ours.dense()
        embps.torch.Optimizer(ours.parameters(), 1.0).step()
        self.assert_close(ours.dense()[1], before[1] - 1)


class State(Case):
    def test_state_names_the_table_and_holds_rows_on_request_alone(self):
        plain = nn.Embedding(WORDS, DIM)
        model = Classifier(self.ours(plain))
        state = model.state_dict()
        self.assertEqual(set(state), {"embedding._extra_state", "out.weight", "out.bias"})
        self.assertEqual(state["embedding._extra_state"],
                         {"cluster": self.client.cluster, "table": "table 1", "dim": DIM,
                          "num_embeddings": WORDS, "checkpoint": None})
        state["embedding._extra_state"]["checkpoint"] = "checkpoint-0000000001"
        model.load_state_dict(state)
        with embps.torch.dense_rows(model):
            dense = model.state_dict()
        self.assertTrue(torch.equal(dense["embedding.weight"], plain.weight))
        self.assertEqual(set(dense), set(Classifier(nn.Embedding(WORDS, DIM)).state_dict()))
        self.assertNotIn("embedding.weight", model.state_dict())
        with embps.torch.dense_rows(model):
            with embps.torch.dense_rows(model.embedding):
                pass
            self.assertEqual(set(model.state_dict()), set(dense))
        self.assertNotIn("embedding.weight", model.state_dict())

        other = Classifier(self.ours(nn.Embedding(WORDS, DIM)))
        with self.assertRaisesRegex(RuntimeError, "table 1"):
            other.load_state_dict(state)
        other.load_state_dict(dense)
        self.assertTrue(torch.equal(other.embedding.dense(), plain.weight))
        with self.assertRaisesRegex(RuntimeError, "embedding.weight"):
            other.load_state_dict({key: value for key, value in state.items() if key.startswith("out")})
        with self.assertRaisesRegex(RuntimeError, "shape"):
            other.load_state_dict({**dense, "embedding.weight": torch.zeros(3, DIM)})
        for reference in (5, None, "table 1"):
            with self.assertRaisesRegex(RuntimeError, f"embedding._extra_state: {reference!r} does not say"):
                model.load_state_dict({**state, "embedding._extra_state": reference})
        with self.assertRaisesRegex(RuntimeError, "bogus"):
            other.load_state_dict({**dense, "embedding.bogus": torch.zeros(3)})

    def test_state_goes_from_and_to_torch(self):
        for plain in (nn.Embedding(WORDS, DIM, padding_idx=2, max_norm=3.0),
                      nn.EmbeddingBag(WORDS, DIM, mode="sum", padding_idx=2)):
            ours = self.ours(type(plain)(WORDS, DIM, **{"padding_idx": 2}))
            ours.load_state_dict(plain.state_dict())
            self.assertTrue(torch.equal(ours.dense(), plain.weight))
            ours.load_state_dict(ours.state_dict())
            with embps.torch.dense_rows(ours):
                state = ours.state_dict()
            plain_again = type(plain)(WORDS, DIM)
            plain_again.load_state_dict(state)
            self.assertTrue(torch.equal(plain_again.weight, plain.weight))
            ours_again = self.ours(type(plain)(WORDS, DIM))
            ours_again.load_state_dict(state)
            self.assertTrue(torch.equal(ours_again.dense(), plain.weight))
            # States of before had both.
            ours_again.load_state_dict({**state, "_extra_state": ours.state_dict()["_extra_state"]})
            without_end = type(ours)(None, DIM, client=self.client, name=f"without end {self.tables}")
            without_end.load_state_dict(plain.state_dict())
            self.assertTrue(torch.equal(without_end.rows.all_rows(WORDS), plain.weight))
            without_end.load_state_dict(without_end.state_dict())
            for wrong in (torch.zeros(3, DIM + 1), torch.zeros(3), torch.zeros(())):
                with self.assertRaisesRegex(RuntimeError, "shape"):
                    without_end.load_state_dict({"weight": wrong})
            back = self.ours(plain).to_embedding()
            self.assertIs(type(back), type(plain))
            self.assertEqual(str(back), str(type(back)(WORDS, DIM, sparse=True, **{
                name: getattr(plain, name) for name in plain.__constants__
                if name in ("padding_idx", "max_norm", "mode")})))
            self.assertTrue(torch.equal(back.weight, plain.weight))

    def test_large_tables_are_loaded_and_read_in_pieces(self):
        with mock.patch.object(embps.torch.rows, "CHUNK_FLOATS", 7 * DIM):
            plain = nn.Embedding(WORDS, DIM)
            self.assertTrue(torch.equal(self.ours(plain).dense(), plain.weight))

    def test_everything_public_is_described(self):
        page = (python_tests.ROOT / "worker" / "python" / "README.md").read_text(encoding="utf-8")
        public = {name: getattr(embps.torch, name) for name in embps.torch.__all__}
        for kind in (embps.torch.Embedding, embps.torch.EmbeddingBag, embps.torch.Optimizer):
            public.update((name, what) for base in kind.__mro__ if base.__module__.startswith("embps.")
                          for name, what in vars(base).items() if callable(getattr(kind, name)) and name[0] != "_")
        for inherited in ("forward", "extra_repr", "get_extra_state", "add_param_group"):
            del public[inherited]
        for name, what in public.items():
            self.assertRegex(page, rf"\b{name}\b")
            self.assertTrue(inspect.getdoc(what), name)

    def test_modules_are_not_copied(self):
        self.assertRaises(TypeError, copy.deepcopy, self.ours(nn.Embedding(WORDS, DIM)))
        self.assertEqual(repr(self.ours(nn.Embedding(WORDS, DIM))), f"Embedding({WORDS}, {DIM}, table='table 2')")


if __name__ == "__main__":
    unittest.main()
