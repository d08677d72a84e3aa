"""The judgement of the evidence, one prefix at a time, vectorised; and the prefixes put together."""
