"""Runs `examples/resnet50.py`, which also has the network of `small_network.py` here."""

from small_network import resnet50

if __name__ == '__main__':
    resnet50.main()
