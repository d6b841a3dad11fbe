"""A decoder of GPT-2's smallest size: 12 layers of 12 heads, width 768, 1,024 positions, 50,257 tokens."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import training

SIZES = {"full": {"layers": 12, "heads": 12, "width": 768, "length": 1024, "tokens": 50257},
         "tiny": {"layers": 2, "heads": 2, "width": 32, "length": 16, "tokens": 101}}


class Block(nn.Module):
    def __init__(self, width, heads, dropout=0.1):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * width, width), nn.Dropout(dropout))
        self.dropout = nn.Dropout(dropout)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)))

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class Decoder(nn.Module):
    def __init__(self, layers, heads, width, length, tokens, recompute):
        super().__init__()
        self.recompute = recompute
        self.token, self.position = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.token(tokens) + self.position(places))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training else block(x)
        return self.head(self.norm(x))


def loss_of(model, tokens, following):
    return F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


def main():
    args = training.arguments("a GPT-2-sized transformer on synthetic text", batch=4,
                              checkpointing="recompute each layer in the backward pass")
    size = SIZES[args.size]

    def sample(generator):
        text = torch.randint(size["tokens"], (size["length"] + 1,), generator=generator)
        return text[:-1], text[1:]

    training.run(args, Decoder(**size, recompute=args.checkpointing), sample, loss_of)


if __name__ == "__main__":
    main()
