{{- define "driverforge.labels" -}}
app.kubernetes.io/name: driverforge
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* What selects the operator's pods, and nothing else. */}}
{{- define "driverforge.selector" -}}
app.kubernetes.io/name: driverforge
app.kubernetes.io/component: operator
{{- end -}}

{{- define "driverforge.image" -}}
{{- required "driverforge.image is not set: name the operator's own image, e.g. --set driverforge.image=registry.example.com/nvidia/driverforge-operator:v0.1.0 (docs/operator-image.md says how it is made)" .Values.driverforge.image -}}
{{- end -}}

{{/* How a pod of ours runs, the operator and the hooks: as nobody, and writing nowhere. */}}
{{- define "driverforge.pod" -}}
securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
{{- with concat .Values.driverforge.imagePullSecrets .Values.operator.imagePullSecrets | uniq }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- range $key := list "priorityClassName" "nodeSelector" "tolerations" "affinity" }}
{{- with get $.Values.operator $key }}
{{ $key }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "driverforge.container" -}}
image: {{ include "driverforge.image" . | quote }}
imagePullPolicy: {{ .Values.driverforge.imagePullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* The variable by which it knows its namespace. */}}
{{- define "driverforge.namespace" -}}
{name: OPERATOR_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
{{- end -}}
