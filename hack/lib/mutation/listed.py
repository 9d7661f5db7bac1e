"""What a mutation run mutates: the files with the tests that concern each, and the operators."""

from __future__ import annotations

_HOST = "entrypoints/driverforge_host"
_DRIVER = "entrypoints/driverforge_driver"
_TOOLKIT = "entrypoints/driverforge_toolkit"
_BUILDER = "builder/driverforge_build"
_MIRROR = "builder/driverforge_mirror"
_OPERATOR_PLAN = "entrypoints/driverforge_operator/plan"
# file → the test modules that concern it, the quick ones first: the first failure ends a mutant
FILES: dict[str, tuple[str, ...]] = {
    f"{_DRIVER}/driver/plan.py": (
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_init.py",
        "tests/tree/test_node_peermem.py",
    ),
    f"{_DRIVER}/driver/converge.py": (
        "tests/unit/test_node_undo.py",
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_notices.py",
        "tests/tree/test_node_peermem.py",
        "tests/tree/test_node_init.py",
        "tests/tree/test_node_stop.py",
        "tests/tree/test_node_daemons.py",
    ),
    f"{_DRIVER}/driver/notices.py": (
        "tests/unit/test_node_warnings.py",
        "tests/tree/test_node_notices.py",
        "tests/tree/test_node_peermem.py",
    ),
    f"{_DRIVER}/driver/choice.py": (
        "tests/unit/test_node_choice.py",
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_init.py",
        "tests/tree/test_node_peermem.py",
    ),
    f"{_DRIVER}/driver/preflight.py": (
        "tests/unit/test_node_preflight.py",
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_init.py",
    ),
    f"{_DRIVER}/driver/usage.py": (
        "tests/unit/test_node_usage.py",
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_stop.py",
    ),
    f"{_HOST}/reconcile/loop.py": ("tests/unit/test_reconcile_loop.py",),
    f"{_TOOLKIT}/watch/decide.py": ("tests/unit/test_watch_decide.py", "tests/tree/test_watch_loop.py"),
    f"{_TOOLKIT}/runtime/transaction/change.py": (
        "tests/tree/test_runtime_steps.py",
        "tests/tree/test_runtime_edited.py",
        "tests/tree/test_runtime_pending.py",
        "tests/tree/test_runtime_rollback.py",
        "tests/tree/test_runtime_fallback.py",
        "tests/tree/test_runtime_armed.py",
        "tests/tree/test_runtime_refused.py",
        "tests/tree/test_runtime_unchanged.py",
    ),
    f"{_TOOLKIT}/runtime/transaction/plans.py": (
        "tests/tree/test_runtime_unservable_plans.py",
        "tests/tree/test_runtime_held.py",
        "tests/tree/test_runtime_plans.py",
        "tests/tree/test_runtime_fallback.py",
        "tests/tree/test_runtime_edited.py",
        "tests/tree/test_runtime_pending.py",
        "tests/tree/test_runtime_node_kept.py",
        "tests/tree/test_runtime_config_asked.py",
    ),
    f"{_TOOLKIT}/runtime/transaction/entry.py": (
        "tests/tree/test_runtime_plans.py",
        "tests/tree/test_runtime_edited.py",
        "tests/tree/test_runtime_pending.py",
        "tests/tree/test_runtime_node_kept.py",
    ),
    f"{_TOOLKIT}/runtime/transaction/consequences.py": (
        "tests/unit/test_runtime_consequences.py",
        "tests/unit/test_runtime_existing.py",
        "tests/unit/test_runtime_places_taken.py",
    ),
    f"{_TOOLKIT}/runtime/transaction/restore.py": (
        "tests/tree/test_runtime_restore_made.py",
        "tests/tree/test_runtime_armed.py",
    ),
    f"{_TOOLKIT}/runtime/journal.py": (
        "tests/tree/test_runtime_journal.py",
        "tests/tree/test_runtime_pending.py",
    ),
    f"{_TOOLKIT}/runtime/backends/hidden_section.py": ("tests/unit/test_hidden_section.py",),
    f"{_TOOLKIT}/runtime/backends/template_render.py": ("tests/unit/test_template_render.py",),
    f"{_TOOLKIT}/runtime/backends/template_cure.py": ("tests/unit/test_template_render.py",),
    f"{_TOOLKIT}/runtime/backends/threeway.py": (
        "tests/unit/test_runtime_threeway.py",
        "tests/unit/test_runtime_docker.py",
        "tests/unit/test_runtime_crio.py",
        "tests/unit/test_runtime_fuzz.py",
        "tests/unit/test_runtime_patch.py",
    ),
    "builder/driverforge_build/verdict/decide.py": (
        "tests/unit/test_verdict_judge.py",
        "tests/unit/test_plan_rows.py",
        "tests/unit/test_verdict_scale.py",
    ),
    "builder/driverforge_build/verdict/remarks.py": (
        "tests/unit/test_verdict_judge.py",
        "tests/unit/test_realtime_cells.py",
    ),
    "builder/driverforge_build/verify/judge.py": ("tests/unit/test_verify_judge.py",),
    "builder/driverforge_build/verify/modules.py": (
        "tests/unit/test_verify_judge.py",
        "tests/tree/test_verify_command.py",
    ),
    "builder/driverforge_build/app/runner.py": ("tests/unit/test_build_retry.py",),
    "builder/driverforge_build/lock/compare.py": ("tests/unit/test_lock_guard.py",),
    "builder/driverforge_build/publish/alias.py": (
        "tests/unit/test_push_publishing.py",
        "tests/tree/test_index_command.py",
    ),
    "builder/driverforge_build/publish/upload.py": (
        "tests/unit/test_build_retry.py",
        "tests/unit/test_push_publishing.py",
        "tests/unit/test_push_family.py",
    ),
    "builder/driverforge_build/report/covered.py": ("tests/tree/test_index_command.py",),
    f"{_BUILDER}/discover/survey.py": (
        "tests/tree/test_lock_parallel.py",
        "tests/tree/test_lock_entitled.py",
        "tests/tree/test_lock_states.py",
        "tests/tree/test_lock_command.py",
    ),
    f"{_BUILDER}/discover/pin.py": (
        "tests/unit/test_pin_modules.py",
        "tests/unit/test_hostile_metadata.py",
        "tests/tree/test_lock_fabric.py",
        "tests/tree/test_lock_command.py",
    ),
    f"{_BUILDER}/fetch/cache.py": (
        "tests/tree/test_apt_fetch.py",
        "tests/tree/test_web_limits.py",
    ),
    f"{_BUILDER}/fetch/fetcher.py": (
        "tests/tree/test_apt_fetch.py",
        "tests/tree/test_fetch_limits.py",
        "tests/tree/test_web_limits.py",
    ),
    f"{_BUILDER}/fetch/headers.py": (
        "tests/tree/test_fetch_limits.py",
        "tests/tree/test_fetch_rpm.py",
        "tests/tree/test_probes_packages.py",
        "tests/tree/test_apt_fetch.py",
    ),
    f"{_BUILDER}/fetch/packagefile.py": (
        "tests/tree/test_fetch_limits.py",
        "tests/tree/test_fetch_rpm.py",
        "tests/tree/test_verify_tree.py",
    ),
    f"{_BUILDER}/fetch/web.py": (
        "tests/tree/test_fetch_limits.py",
        "tests/tree/test_apt_fetch.py",
        "tests/tree/test_web_limits.py",
        "tests/tree/test_lock_entitled.py",
    ),
    f"{_MIRROR}/charts/chart.py": ("tests/unit/test_mirror_charts.py", "tests/unit/test_mirror_needs.py"),
    f"{_MIRROR}/needs/nodes.py": ("tests/unit/test_mirror_needs.py", "tests/tree/test_mirror_command.py"),
    f"{_MIRROR}/needs/needed.py": ("tests/unit/test_mirror_needs.py", "tests/unit/test_mirror_operator.py"),
    f"{_MIRROR}/needs/drivers.py": (
        "tests/unit/test_mirror_needs.py",
        "tests/unit/test_mirror_operator.py",
    ),
    f"{_MIRROR}/needs/slots.py": ("tests/unit/test_mirror_operator.py", "tests/unit/test_mirror_needs.py"),
    f"{_MIRROR}/rewrite.py": ("tests/unit/test_mirror_rewrite.py",),
    f"{_MIRROR}/prune/keep.py": ("tests/unit/test_mirror_prune.py", "tests/engine/test_mirror_prune.py"),
    f"{_MIRROR}/prune/stock.py": ("tests/unit/test_mirror_prune.py", "tests/engine/test_mirror_prune.py"),
    f"{_MIRROR}/contents/ask.py": ("tests/tree/test_mirror_command.py",),
    f"{_BUILDER}/attest/read.py": ("tests/unit/test_attest_run.py", "tests/tree/test_attest_command.py"),
    f"{_BUILDER}/attest/attach.py": ("tests/unit/test_attest_run.py", "tests/tree/test_attest_command.py"),
    f"{_BUILDER}/attest/attached.py": (
        "tests/unit/test_attest_run.py",
        "tests/unit/test_attest_documents.py",
    ),
    f"{_BUILDER}/attest/statement.py": (
        "tests/unit/test_attest_documents.py",
        "tests/unit/test_attest_run.py",
    ),
    f"{_OPERATOR_PLAN}/labels.py": (
        "tests/unit/test_operator_labels.py",
        "tests/unit/test_operator_operands.py",
    ),
    f"{_OPERATOR_PLAN}/operandstates.py": (
        "tests/unit/test_operator_operands.py",
        "tests/unit/test_operator_readiness.py",
        "tests/unit/test_operator_takeover.py",
    ),
    f"{_OPERATOR_PLAN}/placement.py": (
        "tests/unit/test_operator_claims.py",
        "tests/unit/test_operator_labels.py",
        "tests/unit/test_operator_driver.py",
    ),
    f"{_OPERATOR_PLAN}/pools.py": (
        "tests/unit/test_operator_driver.py",
        "tests/unit/test_operator_images.py",
        "tests/unit/test_operator_readiness.py",
    ),
    f"{_OPERATOR_PLAN}/crstatus.py": (
        "tests/unit/test_operator_status.py",
        "tests/unit/test_operator_readiness.py",
        "tests/unit/test_operator_refused.py",
    ),
    "entrypoints/driverforge_oci/client.py": (
        "tests/unit/test_oci_hostile.py",
        "tests/unit/test_oci_client.py",
        "tests/unit/test_oci_referrers.py",
    ),
    "entrypoints/driverforge_oci/transport.py": (
        "tests/unit/test_oci_transport.py",
        "tests/unit/test_oci_hostile.py",
        "tests/tree/test_web_limits.py",
    ),
    "entrypoints/driverforge_core/modsign.py": ("tests/tree/test_sign_messages.py",),
    "entrypoints/driverforge_core/certificate.py": ("tests/tree/test_sign_messages.py",),
    "builder/driverforge_build/app/signing.py": (
        "tests/tree/test_sign_flow.py",
        "tests/tree/test_sign_command.py",
    ),
}

# the names are cosmic-ray's; `ours/…` are those of operators.py beside this file
OPERATORS: tuple[str, ...] = (
    "ours/NegateCondition",
    "ours/SwapMembership",
    "ours/DropCall",
    "ours/ReplaceException",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceComparisonOperator_Eq_NotEq",
    "core/ReplaceComparisonOperator_NotEq_Eq",
    "core/ReplaceComparisonOperator_Is_IsNot",
    "core/ReplaceComparisonOperator_IsNot_Is",
    "core/ReplaceComparisonOperator_Lt_LtE",
    "core/ReplaceComparisonOperator_Lt_GtE",
    "core/ReplaceComparisonOperator_LtE_Lt",
    "core/ReplaceComparisonOperator_LtE_Gt",
    "core/ReplaceComparisonOperator_Gt_GtE",
    "core/ReplaceComparisonOperator_Gt_LtE",
    "core/ReplaceComparisonOperator_GtE_Gt",
    "core/ReplaceComparisonOperator_GtE_Lt",
    "core/ReplaceBinaryOperator_Add_Sub",
    "core/ReplaceBinaryOperator_Sub_Add",
    "core/ReplaceBinaryOperator_BitOr_BitAnd",
    "core/ReplaceBinaryOperator_BitAnd_BitOr",
    "core/NumberReplacer",
    "core/ZeroIterationForLoop",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
)
