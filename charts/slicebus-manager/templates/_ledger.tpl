{{/* `slicebus ledger`, which writes who used what into a database. The names and labels of its objects. */}}

{{- define "slicebus.ledgerName" -}}
{{ include "slicebus.name" . }}-ledger
{{- end }}

{{- define "slicebus.ledgerSelector" -}}
app.kubernetes.io/name: {{ include "slicebus.ledgerName" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slicebus.ledgerLabels" -}}
{{- merge (include "slicebus.ledgerSelector" . | fromYaml) (include "slicebus.labels" . | fromYaml) | toYaml }}
{{- end }}

{{/* A volume belongs to root: the group of the pod may write to it. Where the namespace gives the user, it gives this too. */}}
{{- define "slicebus.ledgerSecurity" -}}
{{- $context := .Values.podSecurityContext -}}
{{- if and (not .Values.ledger.database.existingSecret.name) $context.runAsGroup -}}
{{- $context = merge (dict) $context (dict "fsGroup" $context.runAsGroup "fsGroupChangePolicy" "OnRootMismatch") -}}
{{- end -}}
{{- toYaml $context }}
{{- end }}
