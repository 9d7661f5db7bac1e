{{/*
What the templates read of the values, as values.yaml has it. A section may be missing: with `--reuse-values`
an upgrade has the values of the chart before it, and `--set SECTION=null` takes one away.
*/}}
{{- define "driverforge.read" -}}
driverforge:
  image: ""
  imagePullPolicy: IfNotPresent
  replicas: 1
  imagePullSecrets: []
  env: []
  caConfigMap: {name: "", key: ca.crt}
  nodePolicy: {enabled: true}
  readyTaint: {enabled: false}
  cleanup: {enabled: true}
  metrics:
    service: {enabled: true}
    serviceMonitor: {enabled: false, interval: 30s, labels: {}}
    rules: {enabled: false, labels: {}}
    dashboard: {enabled: false, labels: {grafana_dashboard: "1"}}
cdi: {enabled: true, nriPluginEnabled: false}
daemonsets: {labels: {}, annotations: {}}
operator:
  priorityClassName: system-node-critical
  upgradeCRD: true
  cleanupCRD: false
  nodeSelector: {}
  annotations: {}
  labels: {}
  imagePullSecrets: []
clusterPolicy: {deployCR: true}
driver:
  enabled: true
  nvidiaDriverCRD: {enabled: false, deployDefaultCR: true, driverType: gpu, nodeSelector: {}}
toolkit: {enabled: true}
devicePlugin: {config: {create: false, name: "", data: {}}}
migManager: {config: {create: false, name: "", data: {}}}
dcgmExporter: {config: {create: false, name: "", data: {}}}
extraObjects: []
{{- end -}}

{{/* Every template begins with this: Helm renders them in no order that one could rely on. */}}
{{- define "driverforge.sections" -}}
{{- include "driverforge.fill" (dict "into" .Values "from" (include "driverforge.read" . | fromYaml)) -}}
{{- end -}}

{{/* Not `merge`, which takes false for empty. */}}
{{- define "driverforge.fill" -}}
{{- $into := .into -}}
{{- range $key, $one := .from -}}
  {{- $there := get $into $key -}}
  {{- if or (not (hasKey $into $key)) (kindIs "invalid" $there) -}}{{- $_ := set $into $key $one -}}
  {{- else if and (kindIs "map" $one) (kindIs "map" $there) -}}
    {{- include "driverforge.fill" (dict "into" $there "from" $one) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
