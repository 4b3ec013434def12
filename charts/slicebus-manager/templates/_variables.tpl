{{/* The manager's own environment variables. */}}
{{- define "slicebus.variables" -}}
SLICEBUS_ADMISSION: {{ .Values.admission.mode }}
{{- if .Values.admission.fixedJobs }}
SLICEBUS_FIXED_JOBS: "true"
{{- end }}
SLICEBUS_PODS_BEFORE_JOBS: {{ .Values.admission.podsBeforeJobs | quote }}
SLICEBUS_IDLE_GROWTH_SECONDS: {{ .Values.admission.idleQuota.growthSeconds }}
SLICEBUS_IDLE_HEADROOM: {{ .Values.admission.idleQuota.headroom }}
SLICEBUS_USAGE_HALF_LIFE_SECONDS: {{ .Values.admission.usageFairSharing.halfLifeSeconds | int64 }}
SLICEBUS_USAGE_SAMPLING_SECONDS: {{ .Values.admission.usageFairSharing.samplingSeconds }}
{{- with .Values.admission.usageFairSharing.resourceWeights }}
SLICEBUS_USAGE_WEIGHTS: {{ toJson . | quote }}
{{- end }}
{{- with .Values.admission.deviceClassMappings }}
SLICEBUS_DEVICE_CLASS_MAPPINGS: {{ toJson . | quote }}
{{- end }}
{{- if gt (int .Values.shards) 1 }}
{{- if lt (int .Values.replicas) (int .Values.shards) }}
{{- fail "replicas must not be less than shards: each process has one" }}
{{- end }}
SLICEBUS_SHARDS: {{ .Values.shards }}
{{- end }}
SLICEBUS_CLUSTER_LOST_SECONDS: {{ .Values.clusterLostSeconds }}
{{- with .Values.clusterLostRequeueSeconds }}
SLICEBUS_CLUSTER_LOST_REQUEUE_SECONDS: {{ . }}
{{- end }}
SLICEBUS_REFUSED_REQUEUE_SECONDS: {{ .Values.refusedRequeueSeconds }}
SLICEBUS_NOTICE_CAP_SECONDS: {{ .Values.noticeCapSeconds }}
{{- with .Values.waitForPodsReady.timeoutSeconds }}
SLICEBUS_PODS_READY_SECONDS: {{ . }}
{{- end }}
{{- with .Values.waitForPodsReady.recoveryTimeoutSeconds }}
SLICEBUS_PODS_RECOVERY_SECONDS: {{ . }}
{{- end }}
{{- with .Values.waitForPodsReady.scaleUpTimeoutSeconds }}
SLICEBUS_SCALE_UP_READY_SECONDS: {{ . }}
{{- end }}
SLICEBUS_JOURNAL_MAX_AGE: {{ .Values.journal.maxAge | quote }}
SLICEBUS_JOURNAL_MAX_BYTES: {{ .Values.journal.maxBytes | int64 | quote }}
{{- end }}
