"""This proxy, Forge and LiteLLM in front of the same model: `make bench-rivals` -> benchmarks/rivals.md.

How this is measured:

* Each gateway is the published package in an environment of its own, with the settings of its documentation
  for a model server of unknown kind, and one scripted model serves all, over HTTP.
* A case passes if the client gets the expected calls (names and JSON arguments, in order), or, where no call
  is meant, none and the model's words unchanged. What a gateway asks of the model for it is counted, not
  judged: the model's turns, and the tokens that it reads and writes (four characters each).
* The model has made up its mind. Asked again by whatever words, it repeats a reply in which it sees nothing
  wrong, and corrects one with a wrong name or argument. To a gateway that asks whether its reply was meant as
  a call it tells the truth: RUN or NO.
* CPU is the kernel's count for all processes of a gateway; memory is their proportional set size.
"""
