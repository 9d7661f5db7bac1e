{{/* What the values say to the ClusterPolicy, as JSON: `spec`, and `lost`, the paths that have no effect. */}}
{{- define "driverforge.policy" -}}
{{- $schema := include "driverforge.schema" (list . "clusterpolicies") | fromJson -}}
{{- $values := deepCopy (omit .Values "driverforge" "node-feature-discovery" "extraObjects" "global") -}}
{{- $lost := dict -}}
{{- /* of these two the chart itself takes one switch */ -}}
{{- range $section, $switch := dict "nfd" "enabled" "clusterPolicy" "deployCR" -}}
  {{- $_ := set $values $section (omit (get $values $section | default dict) $switch) -}}
{{- end -}}
{{- $operator := $values.operator -}}
{{- /* of the operator's Deployment: see templates/operator.yaml */ -}}
{{- $operator = omit $operator "priorityClassName" "upgradeCRD" "cleanupCRD" "tolerations" "nodeSelector" "affinity" "annotations" "labels" "imagePullSecrets" "resources" -}}
{{- $_ := set $values "operator" $operator -}}
{{- range $name := list "devicePlugin" "dcgmExporter" "migManager" -}}
  {{- with (get $values $name).config -}}
    {{- $_ := set (get $values $name) "config" (omit . "create" "data") -}}
  {{- end -}}
{{- end -}}
{{- $driver := $values.driver -}}
{{- if $driver.useNvidiaDriverCRD -}}{{- $_ := set $lost "driver.useNvidiaDriverCRD" true -}}{{- end -}}
{{- $_ := set $driver "useNvidiaDriverCRD" $driver.nvidiaDriverCRD.enabled -}}
{{- $_ := unset $driver "nvidiaDriverCRD" -}}
{{- with $driver.upgradePolicy -}}
  {{- if hasKey . "gpuPodDeletion" -}}
    {{- $_ := set . "podDeletion" .gpuPodDeletion -}}
    {{- $_ := unset . "gpuPodDeletion" -}}
  {{- end -}}
{{- end -}}
{{- $spec := dict -}}
{{- range $section, $one := $values -}}
  {{- $known := get $schema.properties $section -}}
  {{- if $known -}}
    {{- with include "driverforge.fit" (dict "value" $one "schema" $known "path" $section "lost" $lost) -}}
      {{- $_ := set $spec $section (get (fromJson .) "v") -}}
    {{- end -}}
  {{- else if kindIs "map" $one -}}
    {{- range $key, $inner := $one -}}
      {{- if not (empty $inner) -}}{{- $_ := set $lost (printf "%s.%s" $section $key) true -}}{{- end -}}
    {{- end -}}
  {{- else if not (empty $one) -}}
    {{- $_ := set $lost $section true -}}
  {{- end -}}
{{- end -}}
{{- range $section := $schema.required -}}
  {{- if not (hasKey $spec $section) -}}{{- $_ := set $spec $section dict -}}{{- end -}}
{{- end -}}
{{- dict "spec" $spec "lost" (keys $lost | sortAlpha) | toJson -}}
{{- end -}}

{{/* What they say to the NVIDIADriver `default`, as JSON. */}}
{{- define "driverforge.defaultDriver" -}}
{{- $schema := include "driverforge.schema" (list . "nvidiadrivers") | fromJson -}}
{{- $driver := deepCopy .Values.driver -}}
{{- $crd := $driver.nvidiaDriverCRD -}}
{{- $wanted := omit $driver "enabled" "nvidiaDriverCRD" "repoConfig" "licensingConfig" "virtualTopology" "upgradePolicy" -}}
{{- $_ := set $wanted "driverType" ($crd.driverType | default "gpu") -}}
{{- /* it takes the nodes that no other claims */ -}}
{{- $_ := set $wanted "default" (empty $crd.nodeSelector) -}}
{{- $_ := set $wanted "nodeSelector" $crd.nodeSelector -}}
{{- range $key := list "labels" "annotations" "tolerations" -}}
  {{- $_ := set $wanted $key (get $.Values.daemonsets $key) -}}
{{- end -}}
{{- with ($driver.repoConfig | default dict).configMapName -}}{{- $_ := set $wanted "repoConfig" (dict "name" .) -}}{{- end -}}
{{- with ($driver.virtualTopology | default dict).config -}}{{- $_ := set $wanted "virtualTopologyConfig" (dict "name" .) -}}{{- end -}}
{{- with $driver.licensingConfig -}}
  {{- if or .secretName .configMapName -}}
    {{- $_ := set $wanted "licensingConfig" (dict "secretName" .secretName "nlsEnabled" .nlsEnabled) -}}
    {{- if not .secretName -}}{{- $_ := set $wanted.licensingConfig "name" .configMapName -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- range $key := list "gds" "gdrcopy" -}}
  {{- $one := get $.Values $key | default dict -}}
  {{- if $one.enabled -}}{{- $_ := set $wanted $key $one -}}{{- end -}}
{{- end -}}
{{- get (include "driverforge.fit" (dict "value" $wanted "schema" $schema "path" "driver" "lost" dict) | fromJson) "v" | toJson -}}
{{- end -}}
