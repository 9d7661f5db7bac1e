{{/*
A Job of a hook, with an account and rights that are there for as long as it runs. The argument is a dict:
root, name, hook, args, rules.
*/}}
{{- define "driverforge.hook" -}}
{{- $root := .root -}}
{{- range $kind := list "ServiceAccount" "ClusterRole" "ClusterRoleBinding" "Job" }}
---
apiVersion: {{ get (dict "ServiceAccount" "v1" "Job" "batch/v1") $kind | default "rbac.authorization.k8s.io/v1" }}
kind: {{ $kind }}
metadata:
  name: {{ $.name }}
  {{- if not (hasPrefix "Cluster" $kind) }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "driverforge.labels" $root | nindent 4 }}
  annotations:
    helm.sh/hook: {{ $.hook }}
    # the Job comes after what it needs
    helm.sh/hook-weight: {{ ternary "1" "0" (eq $kind "Job") | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- if eq $kind "ClusterRole" }}
rules:
  {{- toYaml $.rules | nindent 2 }}
{{- else if eq $kind "ClusterRoleBinding" }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $.name }}}
subjects:
  - {kind: ServiceAccount, name: {{ $.name }}, namespace: {{ $root.Release.Namespace }}}
{{- else if eq $kind "Job" }}
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 600
  template:
    metadata:
      labels:
        {{- include "driverforge.labels" $root | nindent 8 }}
        app.kubernetes.io/component: hook
    spec:
      restartPolicy: OnFailure
      serviceAccountName: {{ $.name }}
      {{- include "driverforge.pod" $root | nindent 6 }}
      containers:
        - name: hook
          args: {{ toJson $.args }}
          {{- include "driverforge.container" $root | nindent 10 }}
          # not driverforge.env: what its variables point at may be gone already, and a hook asks no registry
          env:
            - {{ include "driverforge.namespace" $root }}
          resources:
            limits: {cpu: 500m, memory: 350Mi}
            requests: {cpu: 100m, memory: 100Mi}
{{- end }}
{{- end }}
{{- end -}}
