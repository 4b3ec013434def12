{{/* What may stand around a role's Deployment. Shared by both charts: each has a link to this file. */}}

{{- define "slicebus.around" -}}
{{- $name := include "slicebus.name" . -}}
{{- with .Values.podDisruptionBudget }}
{{- if .enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ $.Release.Namespace }}
  labels: {{- include "slicebus.labels" $ | nindent 4 }}
spec:
  maxUnavailable: {{ .maxUnavailable }}
  selector:
    matchLabels: {{- include "slicebus.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- with .Values.metrics.service }}
{{- if .enabled }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}-metrics
  namespace: {{ $.Release.Namespace }}
  labels: {{- include "slicebus.labels" $ | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # Each pod has metrics of its own.
  clusterIP: None
  # A leader that is not ready says why in its metrics.
  publishNotReadyAddresses: true
  selector: {{- include "slicebus.selector" $ | nindent 4 }}
  ports:
    - {name: http, port: 8080, targetPort: http}
{{- end }}
{{- end }}
{{- with .Values.metrics.podMonitor }}
{{- if .enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ $name }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "slicebus.labels" $ | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels: {{- include "slicebus.selector" $ | nindent 6 }}
  podMetricsEndpoints:
    - {port: http, path: /metrics, interval: {{ .interval }}}
{{- end }}
{{- end }}
{{- with .Values.metrics.prometheusRule }}
{{- if .enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ $name }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "slicebus.labels" $ | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  groups:
    {{- $leaders := get $.Values "shards" | default 1 }}
    {{- range $file := list "role" "both" }}
    - name: {{ $name }}-{{ $file }}
      rules:
        {{- $rules := $.Files.Get (printf "files/alerts/%s.yaml" $file) }}
        {{- $rules = $rules | replace "@NAMESPACE@" $.Release.Namespace | replace "@NAME@" $name }}
        {{- $rules | replace "@LEADERS@" (toString $leaders) | replace "@RUNBOOKS@" $.Values.metrics.prometheusRule.runbooks | nindent 8 }}
    {{- end }}
{{- end }}
{{- end }}
{{- with .Values.networkPolicy }}
{{- if .enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $name }}
  namespace: {{ $.Release.Namespace }}
  labels: {{- include "slicebus.labels" $ | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/instance: {{ $.Release.Name }}
    matchExpressions:
      - {key: app.kubernetes.io/name, operator: In, values: [{{ $name }}, {{ $name }}-test]}
  policyTypes: [Ingress, Egress]
  # The kubelet's probes come from the node, which no policy keeps out.
  {{- if .metricsFrom }}
  ingress:
    - from: {{- toYaml .metricsFrom | nindent 8 }}
      ports: [{protocol: TCP, port: http}]
  {{- else }}
  ingress: []
  {{- end }}
  egress:
    - ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
    {{- range list .apiServer .broker }}
    - ports:
        {{- range .ports }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
      {{- with .to }}
      to: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* `helm test`: the role's own pod, which runs `slicebus doctor` to its end. Called as slicebus.deployment is. */}}
{{- define "slicebus.test" -}}
{{- $template := (include "slicebus.deployment" (merge (dict "once" true) .) | fromYaml).spec.template }}
{{- $container := omit (first $template.spec.containers) "livenessProbe" "readinessProbe" "ports" }}
{{- $container = merge (dict "name" "doctor" "args" (list "doctor")) $container }}
{{- $name := printf "%s-test" (include "slicebus.name" .root) }}
{{- $labels := merge (dict "app.kubernetes.io/name" $name) $template.metadata.labels }}
{{- $hook := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation" }}
{{- $once := dict "restartPolicy" "Never" "activeDeadlineSeconds" 120 "containers" (list $container) }}
apiVersion: v1
kind: Pod
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- toYaml $labels | nindent 4 }}
  annotations: {{- toYaml $hook | nindent 4 }}
spec: {{- merge $once (omit $template.spec "topologySpreadConstraints") | toYaml | nindent 2 }}
{{- end }}

{{/* ClusterRoles that become part of Kubernetes' own view, edit and admin. Called with a dict: root, and the rules of each. */}}
{{- define "slicebus.userRoles" -}}
{{- $root := .root }}
{{- if $root.Values.userRoles.create }}
{{- range $role, $rules := .rules }}
{{- if $rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "slicebus.clusterScopedName" $root }}.{{ $role }}
  labels:
    {{- include "slicebus.labels" $root | nindent 4 }}
    rbac.authorization.k8s.io/aggregate-to-{{ $role }}: "true"
rules: {{- toYaml $rules | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
