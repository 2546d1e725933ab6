"""Data sets: what they are, and that an image is the same at every batch size."""

import numpy as np
import pytest

from alexconv import data
from alexconv.accuracy import network
from alexconv.errors import UsageError
from alexconv.shapes import WORKLOADS, Conv

CONV = Conv(C=5, H=9, W=8, M=7, R=3, S=2, pad=1)


@pytest.mark.parametrize("name", data.DATA_SETS)
def test_an_image_is_the_same_at_every_batch_size(name):
    many = data.images("test", 1, CONV, 0, 6, data=name)
    assert many.dtype == np.float32
    np.testing.assert_array_equal(data.images("test", 1, CONV, 4, 5, data=name), many[4:5])
    assert not many[:, :, 0].any() and not many[:, :, :, -1].any(), "the border is zero"
    filters = data.filters("test", 1, CONV, data=name)
    assert (filters.shape, filters.dtype) == (CONV.w_shape(), np.float32)
    finite = np.isfinite(many).all() and np.isfinite(filters).all()
    assert finite == data.DATA_SETS[name].finite


UNIFORM_INPUT, UNIFORM_FILTER = -0.7539899349212646, -0.5476928949356079


def test_uniform_inputs_are_those_of_older_records():
    assert data.images("alexnet", 3, WORKLOADS["alexnet"].layer(3), 1, 2)[0, 7, 3, 5] == np.float32(UNIFORM_INPUT)
    assert data.filters("alexnet", 3, WORKLOADS["alexnet"].layer(3))[5, 4, 1, 2] == np.float32(UNIFORM_FILTER)


def test_data_sets_are_what_they_say():
    def inputs(name):
        return data.images("test", 1, CONV, 0, 30, data=name)[:, :, 1:-1, 1:-1]

    assert 0.45 < np.mean(inputs("relu") == 0) < 0.55
    heavy = inputs("heavy-tail")
    assert heavy.max() > 1e3 * np.median(heavy[heavy > 0])
    sizes = np.abs(inputs("scales-images")).max(axis=(1, 2, 3))
    assert sizes.max() / sizes.min() > 1e19
    sizes = np.abs(data.filters("test", 1, CONV, data="scales-filters")).max(axis=(1, 2, 3))
    assert sizes.max() / sizes.min() > 1e12
    assert (np.abs(inputs("subnormal")) < np.finfo(np.float32).tiny).all()
    assert [np.sum(image == np.float32(1e20)) for image in inputs("one-huge")] == [1] * 30
    assert not inputs("zeros").any()
    assert len(np.unique(inputs("constant"))) == 1


def test_real_inputs_are_those_of_the_trained_network():
    conv, name = network.WORKLOAD.layer(1), network.WORKLOAD.name
    images, _ = network.held_out(3)
    np.testing.assert_array_equal(data.images(name, 1, conv, 0, 3, data="real"), images)
    trained = network.trained()
    for layer, w in enumerate(trained.filters, start=1):
        np.testing.assert_array_equal(data.filters(name, layer, network.WORKLOAD.layer(layer), data="real"), w)
    second = network.pooled(np.maximum(network.on_cpu(1, images, trained.filters[0]), 0))
    inputs = data.images(name, 2, network.WORKLOAD.layer(2), 0, 3, data="real")
    np.testing.assert_allclose(inputs, second, atol=1e-6)


def test_an_unknown_data_set_is_named():
    with pytest.raises(UsageError, match="unknown data 'easy': choose from uniform, normal"):
        data.data_set("easy")
