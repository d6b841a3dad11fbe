"""A language model of two LSTM layers: 1,500 cells each, 10,000 words, 35 steps."""
import torch
import torch.nn.functional as F
from torch import nn

import training

SIZES = {"full": {"words": 10000, "width": 1500, "layers": 2, "steps": 35},
         "tiny": {"words": 101, "width": 32, "layers": 2, "steps": 8}}


class Model(nn.Module):
    def __init__(self, words, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=0.65, batch_first=True)
        self.dropout = nn.Dropout(0.65)
        self.head = nn.Linear(width, words)

    def forward(self, text):
        out, _ = self.lstm(self.dropout(self.embedding(text)))
        return self.head(self.dropout(out))


def loss_of(model, text, following):
    return F.cross_entropy(model(text).flatten(0, 1), following.flatten())


def main():
    args = training.arguments("an LSTM language model on synthetic text", batch=64)
    size = SIZES[args.size]

    def sample(generator):
        text = torch.randint(size["words"], (size["steps"] + 1,), generator=generator)
        return text[:-1], text[1:]

    training.run(args, Model(size["words"], size["width"], size["layers"]), sample, loss_of)


if __name__ == "__main__":
    main()
