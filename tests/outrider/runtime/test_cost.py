import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.runtime.cost import ModelCost, model_cost
from outrider.runtime.weights import store_linears

SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}
# Per layer q and o, k and v, and the three of the MLP.
WEIGHTS = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)


def llama(dtype):
    return LlamaForCausalLM(LlamaConfig(**SHAPE)).to(dtype)


def test_weights_of_the_layers_and_of_the_output_layer():
    assert model_cost(llama(torch.float32), 7) == ModelCost(WEIGHTS, 4 * WEIGHTS, 6400, 4 * 6400, 7)


def test_packing_changes_nothing():
    model = llama(torch.bfloat16)
    before = model_cost(model, 7)
    store_linears(model, "bfloat16", torch.device("cpu"))
    assert model_cost(model, 7) == before == ModelCost(WEIGHTS, 2 * WEIGHTS, 6400, 2 * 6400, 7)


def test_a_layer_may_state_what_it_reads():
    class Quantized(nn.Module):
        in_features, out_features, weight_bytes = 8, 4, 17

    assert model_cost(nn.Sequential(Quantized()), 0) == ModelCost(32, 17, 0, 0, 0)


def test_work_is_linear_in_rows():
    cost = ModelCost(1000, 2000, 100, 200, 10)
    assert cost.flops(8, 2) == 2 * 8000 + 2 * 200
    assert (cost.read_bytes(2, 5), cost.read_bytes(0, 5)) == (2250, 2050)
