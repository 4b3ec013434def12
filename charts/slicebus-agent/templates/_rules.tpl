{{/* To create jobs as a service account of their namespaces. */}}
{{- define "slicebus.createAsRule" -}}
- apiGroups: [""]
  resources: [serviceaccounts]
  resourceNames: [{{ .Values.policy.createAs | quote }}]
  verbs: [impersonate]
{{- end }}

{{/* What the agent does in the namespaces of jobs. */}}
{{- define "slicebus.jobRules" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [ray.io]
  resources: [rayclusters, rayjobs, rayservices]
  verbs: [get, list, watch, create, patch, delete]
{{- range include "slicebus.moreKinds" . | fromYamlArray }}
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .plural | quote }}]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create, patch]
- apiGroups: [""]
  resources: [limitranges]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- include "slicebus.schedulerRules" . }}
{{- end }}
