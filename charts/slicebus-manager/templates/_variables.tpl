{{/* The manager's own environment variables. */}}
{{- define "slicebus.variables" -}}
SLICEBUS_ADMISSION: {{ .Values.admission.mode }}
SLICEBUS_CLUSTER_LOST_SECONDS: {{ .Values.clusterLostSeconds }}
SLICEBUS_JOURNAL_MAX_AGE: {{ .Values.journal.maxAge | quote }}
SLICEBUS_JOURNAL_MAX_BYTES: {{ .Values.journal.maxBytes | int64 | quote }}
{{- end }}
