{{/*
Values as a custom resource takes them. The definition in crds/ says which fields there are, so that a new
field needs nothing here.

  value    what the user wrote
  schema   of that place in the resource
  path     of the value, for a reader
  lost     a dict; gets each path that the resource does not have, or that it ignores

The answer is JSON, {"v": …}, or nothing where the value says nothing: empty texts, lists and maps are left
out, unless the schema knows the empty text as a choice of its own.
*/}}
{{- define "driverforge.fit" -}}
{{- $value := .value -}}{{- $schema := .schema -}}{{- $path := .path -}}{{- $lost := .lost -}}
{{- if and (not (empty $value)) (hasPrefix "Deprecated, without effect" (get $schema "description")) -}}
  {{- $_ := set $lost $path true -}}
{{- end -}}
{{- if kindIs "map" $value -}}
  {{- $out := dict -}}
  {{- range $key, $one := $value -}}
    {{- $known := dict -}}
    {{- with $schema.properties -}}{{- $known = get . $key -}}
    {{- else -}}{{- with $schema.additionalProperties -}}{{- $known = . -}}{{- end -}}{{- end -}}
    {{- $at := printf "%s.%s" $path $key -}}
    {{- if $known -}}
      {{- with include "driverforge.fit" (dict "value" $one "schema" $known "path" $at "lost" $lost) -}}
        {{- $_ := set $out $key (get (fromJson .) "v") -}}
      {{- end -}}
    {{- else if not (empty $one) -}}
      {{- $_ := set $lost $at true -}}
    {{- end -}}
  {{- end -}}
  {{- if $out -}}{{- dict "v" $out | toJson -}}{{- end -}}
{{- else if kindIs "slice" $value -}}
  {{- $out := list -}}
  {{- range $index, $one := $value -}}
    {{- $at := printf "%s[%d]" $path $index -}}
    {{- with include "driverforge.fit" (dict "value" $one "schema" ($schema.items | default dict) "path" $at "lost" $lost) -}}
      {{- $out = append $out (get (fromJson .) "v") -}}
    {{- end -}}
  {{- end -}}
  {{- if $out -}}{{- dict "v" $out | toJson -}}{{- end -}}
{{- else if kindIs "invalid" $value -}}
{{- else -}}
  {{- $text := include "driverforge.text" $value -}}
  {{- $type := get $schema "type" -}}
  {{- if and (eq $text "") (not (has "" (get $schema "enum" | default list))) -}}
  {{- else if eq $type "string" -}}{{- dict "v" $text | toJson -}}
  {{- else if and (eq $type "boolean") (has $text (list "true" "false")) -}}{{- dict "v" (eq $text "true") | toJson -}}
  {{- else if and (eq $type "integer") (regexMatch "^-?[0-9]+$" $text) -}}{{- dict "v" (int64 $text) | toJson -}}
  {{- else -}}{{- dict "v" $value | toJson -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* A scalar as text: 550 is 550, where YAML gave Helm the float 550. */}}
{{- define "driverforge.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{- int64 . -}}{{- else -}}{{- toString . -}}{{- end -}}
{{- end -}}

{{/* The schema of a resource's spec, as JSON; the argument is (list $ FILE). */}}
{{- define "driverforge.schema" -}}
{{- $definition := (index . 0).Files.Get (printf "crds/%s.yaml" (index . 1)) | fromYaml -}}
{{- (index $definition.spec.versions 0).schema.openAPIV3Schema.properties.spec | toJson -}}
{{- end -}}
