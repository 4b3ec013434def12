{{/* The agent's own environment variables. */}}
{{- define "slicebus.variables" -}}
SLICEBUS_CLUSTER: {{ .Values.cluster | required "cluster is needed: the name of this cluster's WorkerCluster" | quote }}
SLICEBUS_MANAGER_USER: {{ .Values.managerUser | required "managerUser is needed: the manager's broker user, the only one whose orders the agent takes" | quote }}
SLICEBUS_POLICY_FILE: /etc/slicebus/policy/policy.yaml
{{- with .Values.namespaces }}
SLICEBUS_NAMESPACES: {{ join "," . | quote }}
{{- end }}
SLICEBUS_SCHEDULERS: {{ include "slicebus.schedulerProfiles" . | quote }}
SLICEBUS_HEARTBEAT_SECONDS: {{ .Values.heartbeatSeconds }}
SLICEBUS_STATUS_INTERVAL_SECONDS: {{ .Values.statusIntervalSeconds }}
SLICEBUS_AUTOSCALER_SHRINK_SECONDS: {{ .Values.autoscalerShrinkSeconds }}
{{- end }}
