{{/* What the agent makes for each scheduler backend, what else it reads, and whether it writes a status. */}}
{{- define "slicebus.schedulerBackends" -}}
kube:
  makes: [{group: scheduling.k8s.io, plural: workloads}, {group: scheduling.k8s.io, plural: podgroups}]
kai:
  makes: [{group: scheduling.run.ai, plural: podgroups}]
  reads: [{group: scheduling.run.ai, plural: queues}]
volcano:
  makes: [{group: scheduling.volcano.sh, plural: podgroups}]
  reads: [{group: scheduling.volcano.sh, plural: queues}]
grove:
  makes: [{group: scheduler.grove.io, plural: podgangs}]
  writesStatus: true
{{- end }}

{{/* Those that the profiles enable: a YAML list. */}}
{{- define "slicebus.enabledBackends" -}}
{{- $known := include "slicebus.schedulerBackends" . | fromYaml }}
{{- range .Values.schedulers }}
{{- with get $known .name }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the agent does for them in the namespaces of jobs. */}}
{{- define "slicebus.schedulerRules" -}}
{{- range include "slicebus.enabledBackends" . | fromYamlArray }}
{{- $backend := . }}
{{- range .makes }}
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .plural | quote }}]
  verbs: [get, list, watch, create, patch, delete]
{{- if $backend.writesStatus }}
- apiGroups: [{{ .group | quote }}]
  resources: ["{{ .plural }}/status"]
  verbs: [patch]
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The profiles as the agent reads them, JSON. It takes one profile of each backend, and does not start with two. */}}
{{- define "slicebus.schedulerProfiles" -}}
{{- $names := list }}
{{- range .Values.schedulers }}
{{- if has .name $names }}
{{- fail (printf "schedulers: %s has two profiles" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- toJson .Values.schedulers }}
{{- end }}
