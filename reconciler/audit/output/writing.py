"""Writes OUT in one step. OUT has the documents, tables, report and statements of one judgement.

engines/job.py makes the judgement. The same judgement by the same engine gives the same bytes in every file, on every
machine and at any time. Another engine changes only the engine's name in result.json, page and statements.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from reconciler.audit.history.checkpoint import CHECKPOINT
from reconciler.audit.output.evidence import keep
from reconciler.audit.output.folder import ClaimedOutput, OutputDraft, claim_output, drafted_output
from reconciler.audit.output.tables import counts_parquet, findings_parquet
from reconciler.audit.report.page import report_html
from reconciler.audit.report.texts import REPORT_LANGUAGES
from reconciler.audit.result.documents import (
    canonical,
    canonical_lines,
    finding_document,
    latency_rows,
    result_document,
    sorted_findings,
    volume_rows,
)
from reconciler.audit.result.values import EngineKind, JudgedWindow
from reconciler.audit.statement.document import INPUTS, canonical_inputs
from reconciler.audit.statement.keys import SigningKey, read_signing_key
from reconciler.audit.statement.writing import statement_files

__all__ = ["claim_output", "write_output"]


def write_output(
    judged: JudgedWindow,
    out: ClaimedOutput | Path | str,
    *,
    engine: EngineKind = "spark",
    zone: str = "UTC",
    language: str = REPORT_LANGUAGES[0],
    signing_key: Path | str | SigningKey | None = None,
    previous: Path | str | None = None,
    evidence: Path | str | None = None,
    keep_evidence: bool = False,
) -> Path:
    """Puts a judgement into OUT. Replaces an older audit's output. Returns the path.

    `out`: a path, or the result of an earlier claim_output.
    `engine`: engine that has judged.
    `zone`: IANA name of the time zone in which people read the window. All times in files are UTC.
    `language`: language of the report, one of REPORT_LANGUAGES.
    `signing_key`: signs the statements. None: the statements say that they are unsigned.
    `previous`: an older OUT that the statements follow.
    `evidence`: folder or URL that was judged.
    `keep_evidence`: True moves the evidence to OUT/evidence. Evidence already in OUT stays.

    Raises AuditError("usage") if OUT, a key or `previous` cannot be used. Raises AuditError("engine") for errors of the
    disk. After an error OUT stays as it was.
    """
    key = read_signing_key(signing_key) if isinstance(signing_key, Path | str) else signing_key
    claim = nullcontext(out) if isinstance(out, ClaimedOutput) else claim_output(out)
    with claim as claimed, drafted_output(claimed) as draft:
        result = result_document(judged, zone, engine)
        write_documents(draft, judged, result, zone, language)
        draft.write(INPUTS, canonical_inputs(result))
        for name, data in statement_files(result, draft.described(), key=key, previous=previous):
            draft.write(name, data)
        if evidence is not None and "://" not in str(evidence):
            keep(Path(evidence), draft.folder, claimed.path, is_ours=keep_evidence)
    return claimed.path


def write_documents(draft: OutputDraft, judged: JudgedWindow, result: dict[str, Any], zone: str, language: str) -> None:
    """Writes every file except the statements."""
    draft.write("result.json", canonical(result))
    draft.write("findings.json", canonical_lines(finding_document(finding) for finding in sorted_findings(judged)))
    draft.write("findings.parquet", findings_parquet(judged))
    draft.write("counts.parquet", counts_parquet(judged))
    if judged.manifest is not None:
        draft.write(CHECKPOINT, judged.manifest)
    draft.write("volume.json", canonical_lines(volume_rows(judged)))
    draft.write("latency.json", canonical_lines(latency_rows(judged)))
    draft.write("report.html", report_html(judged, zone=zone, engine=result["engine"], language=language))
