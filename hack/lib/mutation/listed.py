"""What a mutation run mutates: the files with the tests that concern each, and the operators."""

from __future__ import annotations

_NODE = "entrypoints/driverforge_node"
# file → the test modules that concern it, the quick ones first: the first failure ends a mutant
FILES: dict[str, tuple[str, ...]] = {
    f"{_NODE}/driver/plan.py": (
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_init.py",
        "tests/tree/test_node_peermem.py",
    ),
    f"{_NODE}/driver/converge.py": (
        "tests/unit/test_node_undo.py",
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_notices.py",
        "tests/tree/test_node_peermem.py",
        "tests/tree/test_node_init.py",
        "tests/tree/test_node_stop.py",
        "tests/tree/test_node_daemons.py",
    ),
    f"{_NODE}/driver/notices.py": (
        "tests/unit/test_node_warnings.py",
        "tests/tree/test_node_notices.py",
        "tests/tree/test_node_peermem.py",
    ),
    f"{_NODE}/driver/choice.py": (
        "tests/unit/test_node_choice.py",
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_init.py",
        "tests/tree/test_node_peermem.py",
    ),
    f"{_NODE}/driver/preflight.py": (
        "tests/unit/test_node_preflight.py",
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_init.py",
    ),
    f"{_NODE}/driver/usage.py": (
        "tests/unit/test_node_usage.py",
        "tests/unit/test_node_plan.py",
        "tests/tree/test_node_stop.py",
    ),
    f"{_NODE}/reconcile/loop.py": ("tests/unit/test_reconcile_loop.py",),
    f"{_NODE}/watch/decide.py": ("tests/unit/test_watch_decide.py", "tests/tree/test_watch_loop.py"),
    f"{_NODE}/runtime/transaction/change.py": (
        "tests/tree/test_runtime_steps.py",
        "tests/tree/test_runtime_edited.py",
        "tests/tree/test_runtime_pending.py",
        "tests/tree/test_runtime_rollback.py",
        "tests/tree/test_runtime_fallback.py",
        "tests/tree/test_runtime_armed.py",
        "tests/tree/test_runtime_refused.py",
        "tests/tree/test_runtime_unchanged.py",
    ),
    f"{_NODE}/runtime/transaction/plans.py": (
        "tests/tree/test_runtime_unservable_plans.py",
        "tests/tree/test_runtime_held.py",
        "tests/tree/test_runtime_plans.py",
        "tests/tree/test_runtime_fallback.py",
        "tests/tree/test_runtime_edited.py",
        "tests/tree/test_runtime_pending.py",
        "tests/tree/test_runtime_node_kept.py",
        "tests/tree/test_runtime_config_asked.py",
    ),
    f"{_NODE}/runtime/transaction/consequences.py": (
        "tests/unit/test_runtime_consequences.py",
        "tests/unit/test_runtime_existing.py",
        "tests/unit/test_runtime_places_taken.py",
    ),
    f"{_NODE}/runtime/transaction/restore.py": (
        "tests/tree/test_runtime_restore_made.py",
        "tests/tree/test_runtime_armed.py",
    ),
    f"{_NODE}/runtime/journal.py": (
        "tests/tree/test_runtime_journal.py",
        "tests/tree/test_runtime_pending.py",
    ),
    f"{_NODE}/runtime/backends/threeway.py": (
        "tests/unit/test_runtime_threeway.py",
        "tests/unit/test_runtime_docker.py",
        "tests/unit/test_runtime_crio.py",
        "tests/unit/test_runtime_fuzz.py",
        "tests/unit/test_runtime_patch.py",
    ),
    "builder/driverforge_build/verdict.py": (
        "tests/unit/test_verdict_judge.py",
        "tests/unit/test_plan_rows.py",
        "tests/unit/test_verdict_scale.py",
    ),
    "builder/driverforge_build/verify/judge.py": ("tests/unit/test_verify_judge.py",),
    "builder/driverforge_build/verify/modules.py": (
        "tests/unit/test_verify_judge.py",
        "tests/tree/test_verify_command.py",
    ),
    "builder/driverforge_build/app/retry.py": ("tests/unit/test_build_retry.py",),
    "builder/driverforge_build/lock/compare.py": ("tests/unit/test_lock_guard.py",),
    "builder/driverforge_build/publish/index.py": (
        "tests/unit/test_push_publishing.py",
        "tests/tree/test_index_command.py",
    ),
    "builder/driverforge_build/publish/upload.py": (
        "tests/unit/test_push_publishing.py",
        "tests/unit/test_push_family.py",
    ),
    "builder/driverforge_build/report/covered.py": ("tests/tree/test_index_command.py",),
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
    "core/ExceptionReplacer",
    "core/ZeroIterationForLoop",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
)
