-- Written by docs/generate.py; change the code and run `make docs`.

\connect orders
GRANT SELECT ON reconciler_outbox TO reconciler_run;
GRANT SELECT ON reconciler_outbox_identity TO reconciler_run;
GRANT SELECT ON reconciler_alembic_version_outbox TO reconciler_run;
GRANT SELECT, UPDATE (state, announced_at_ms, settled_at_ms), DELETE, INSERT ON reconciler_outbox TO reconciler_sweep;
GRANT SELECT, UPDATE (swept_at_ms) ON reconciler_outbox_identity TO reconciler_sweep;
GRANT SELECT, INSERT, UPDATE (tags, version) ON reconciler_outbox_filter TO reconciler_sweep;
GRANT SELECT ON reconciler_outbox TO reconciler_audit;
GRANT SELECT ON reconciler_outbox_identity TO reconciler_audit;
GRANT SELECT, INSERT, UPDATE (state, announced_at_ms) ON reconciler_outbox TO order_service;
GRANT SELECT ON reconciler_outbox_identity TO order_service;

\connect billing
GRANT SELECT ON reconciler_inbox TO reconciler_run;
GRANT SELECT ON reconciler_alembic_version_inbox TO reconciler_run;
GRANT SELECT ON reconciler_inbox TO reconciler_sweep;
GRANT SELECT ON reconciler_inbox TO reconciler_audit;
GRANT SELECT, INSERT, UPDATE (incomplete) ON reconciler_inbox TO billing_service;

\connect ledger
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_candidate TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_repair TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_round TO reconciler_run;
GRANT SELECT, INSERT, UPDATE ON reconciler_subscription TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_half TO reconciler_run;
GRANT SELECT, INSERT, UPDATE ON reconciler_floor TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_outage TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_hold TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_broker TO reconciler_run;
GRANT SELECT, INSERT, UPDATE ON reconciler_environment TO reconciler_run;
GRANT SELECT, INSERT, DELETE ON reconciler_quarantine TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_operator_action TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_job TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_idempotency_key TO reconciler_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON reconciler_notice TO reconciler_run;
GRANT SELECT ON reconciler_alembic_version_ledger TO reconciler_run;
GRANT SELECT ON reconciler_candidate TO reconciler_sweep;
GRANT SELECT ON reconciler_repair TO reconciler_sweep;
GRANT SELECT ON reconciler_round TO reconciler_sweep;
GRANT SELECT ON reconciler_subscription TO reconciler_sweep;
GRANT SELECT ON reconciler_outage TO reconciler_sweep;
GRANT SELECT ON reconciler_hold TO reconciler_sweep;
GRANT SELECT, INSERT, UPDATE ON reconciler_notice TO reconciler_sweep;
GRANT SELECT ON reconciler_candidate TO reconciler_audit;
GRANT SELECT ON reconciler_repair TO reconciler_audit;
GRANT SELECT ON reconciler_round TO reconciler_audit;
GRANT SELECT ON reconciler_subscription TO reconciler_audit;
GRANT SELECT ON reconciler_floor TO reconciler_audit;
GRANT SELECT ON reconciler_outage TO reconciler_audit;
GRANT SELECT ON reconciler_hold TO reconciler_audit;
GRANT SELECT ON reconciler_broker TO reconciler_audit;
GRANT SELECT ON reconciler_environment TO reconciler_audit;
GRANT SELECT ON reconciler_quarantine TO reconciler_audit;
GRANT SELECT ON reconciler_operator_action TO reconciler_audit;
GRANT SELECT ON reconciler_job TO reconciler_audit;
GRANT SELECT ON reconciler_notice TO reconciler_audit;
GRANT SELECT ON reconciler_half TO reconciler_audit;
