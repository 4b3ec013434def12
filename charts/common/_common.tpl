{{/* Shared by both charts: each has a link to this file. */}}

{{- define "slicebus.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* The name of a cluster-scoped object: no other release in the cluster has the same. */}}
{{- define "slicebus.clusterScopedName" -}}
{{- $name := include "slicebus.name" . -}}
{{- contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}.{{ .Release.Namespace }}
{{- end }}

{{- define "slicebus.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "slicebus.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | required "serviceAccount.name is needed with serviceAccount.create=false" }}
{{- end -}}
{{- end }}

{{- define "slicebus.selector" -}}
app.kubernetes.io/name: {{ include "slicebus.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slicebus.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/part-of: slicebus
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "slicebus.selector" . }}
{{- end }}

{{/* The Secret with the broker's address: the user's own, or the one that this chart makes of amqp.url. */}}
{{- define "slicebus.amqpSecret" -}}
{{- if .Values.amqp.existingSecret.name -}}
{{ .Values.amqp.existingSecret.name }}
{{- else -}}
{{ include "slicebus.name" . }}-amqp
{{- end -}}
{{- end }}

{{- define "slicebus.amqpSecretKey" -}}
{{- if .Values.amqp.existingSecret.name }}{{ .Values.amqp.existingSecret.key }}{{ else }}url{{ end -}}
{{- end }}

{{/* The image, by its digest where there is one. */}}
{{- define "slicebus.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest | quote }}
{{- else -}}
{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) | quote }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The job kinds beside slicebus' own, as a list of group and plural: those of packages, and those that are declared. */}}
{{- define "slicebus.moreKinds" -}}
{{- $kinds := .Values.extraJobKinds }}
{{- range .Values.declaredJobKinds }}
{{- $group := contains "/" .apiVersion | ternary (splitList "/" .apiVersion | first) "" }}
{{- $kinds = append $kinds (dict "group" $group "plural" .plural) }}
{{- end }}
{{- toYaml $kinds }}
{{- end }}

{{/* The names of their definitions: kinds of the API server's own have none. */}}
{{- define "slicebus.moreDefinitions" -}}
{{- range include "slicebus.moreKinds" . | fromYamlArray }}
{{- if and (contains "." .group) (not (hasSuffix ".k8s.io" .group)) }}
- {{ printf "%s.%s" .plural .group | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Annotations that change with the objects that the chart makes and the pods read: a change starts them anew. The address has
     a password: by scrypt, so that nobody who reads pods guesses it from the annotation. */}}
{{- define "slicebus.checksums" -}}
{{- if and .Values.amqp.url (not .Values.amqp.existingSecret.name) -}}
checksum/amqp: {{ derivePassword 1 "long" .Values.amqp.url .Release.Name .Chart.Name | sha256sum }}
{{- end }}
{{- with .Values.declaredJobKinds }}
checksum/job-kinds: {{ toJson . | sha256sum }}
{{- end }}
{{- end }}

{{/* The CRDs of files/crds whose group is on, in crds.kueue and crds.slicebus. They stay when the release goes: with them would go every object. */}}
{{- define "slicebus.crds" -}}
{{- range $path, $content := .Files.Glob "files/crds/*.yaml" }}
{{- $crd := $.Files.Get $path | fromYaml }}
{{- $group := $crd.spec.group | splitList "." | first }}
{{- $brought := and (eq $group "kueue") (eq (($.Values.admission).mode | default "builtin") "kueue") }}
{{- if and (index $.Values.crds $group) (not $brought) }}
{{- $_ := set $crd.metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
---
{{ toYaml $crd }}
{{- end }}
{{- end }}
{{- end }}

{{/* The objects around the Deployment, but its rules: account, bindings, and the Secret of amqp.url. */}}
{{- define "slicebus.account" -}}
{{- if .Values.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "slicebus.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "slicebus.labels" . | nindent 4 }}
  {{- with .Values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "slicebus.clusterScopedName" . }}
  labels: {{- include "slicebus.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "slicebus.clusterScopedName" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "slicebus.serviceAccount" . }}
    namespace: {{ .Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "slicebus.name" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "slicebus.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "slicebus.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "slicebus.serviceAccount" . }}
    namespace: {{ .Release.Namespace }}
{{- with .Values.declaredJobKinds }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "slicebus.name" $ }}-job-kinds
  namespace: {{ $.Release.Namespace }}
  labels: {{- include "slicebus.labels" $ | nindent 4 }}
data:
  job-kinds.json: {{ toJson . | quote }}
{{- end }}
{{- if not .Values.amqp.existingSecret.name }}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ include "slicebus.amqpSecret" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "slicebus.labels" . | nindent 4 }}
type: Opaque
stringData:
  url: {{ .Values.amqp.url | required "the broker's address is needed: amqp.existingSecret.name, a Secret with the key url" | quote }}
{{- end }}
{{- end }}

{{/* The Deployment. Called with a dict: root, the command's argument, the role's own variables as a map, and whether the ConfigMap of its policy is
     mounted. With `once` it has no checksums, which are for pods that a change starts anew: scrypt takes a fifth of a second. */}}
{{- define "slicebus.deployment" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- include "slicebus.amqpCheck" $root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "slicebus.name" $root }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "slicebus.labels" $root | nindent 4 }}
spec:
  replicas: {{ $values.replicas }}
  selector:
    matchLabels: {{- include "slicebus.selector" $root | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "slicebus.labels" $root | nindent 8 }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if not .once }}
      {{- with merge (include "slicebus.checksums" $root | fromYaml) $values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "slicebus.serviceAccount" $root }}
      {{- with $values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      securityContext: {{- toYaml $values.podSecurityContext | nindent 8 }}
      # A role finishes what it has begun, and gives its Lease back.
      terminationGracePeriodSeconds: 30
      containers:
        - name: {{ .command }}
          image: {{ include "slicebus.image" $root }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args: [{{ .command }}]
          env:
            - name: AMQP_URL
              valueFrom:
                secretKeyRef:
                  name: {{ include "slicebus.amqpSecret" $root }}
                  key: {{ include "slicebus.amqpSecretKey" $root }}
            - name: SLICEBUS_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            - name: SLICEBUS_IDENTITY
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: SLICEBUS_LOG_LEVEL
              value: {{ $values.logLevel | quote }}
            - name: SLICEBUS_RECORD_DECISIONS
              value: {{ $values.journal.recordDecisions | quote }}
            - name: SLICEBUS_MESSAGE_BYTES
              value: {{ $values.messages.maxBytes | int64 | quote }}
            - name: SLICEBUS_HELD_BYTES
              value: {{ $values.messages.maxHeldBytes | int64 | quote }}
            {{- if $values.declaredJobKinds }}
            - name: SLICEBUS_JOB_KINDS_FILE
              value: /etc/slicebus/job-kinds/job-kinds.json
            {{- end }}
            {{- range $name, $value := .variables }}
            - name: {{ $name }}
              value: {{ $value | quote }}
            {{- end }}
            {{- with include "slicebus.amqpVariables" $root | trim }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with $values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - {name: http, containerPort: 8080}
          # It touches neither broker nor API server: an outage there must restart nothing.
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 10
            failureThreshold: 6
          # A leader or a standby in working order. Nothing is sent to the pod by it.
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 5
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext: {{- toYaml $values.securityContext | nindent 12 }}
          {{- $mounts := include "slicebus.amqpMounts" $root | trim }}
          {{- if or $mounts $values.extraVolumeMounts .policy $values.declaredJobKinds }}
          volumeMounts:
            {{- if .policy }}
            - {name: policy, mountPath: /etc/slicebus/policy, readOnly: true}
            {{- end }}
            {{- if $values.declaredJobKinds }}
            - {name: job-kinds, mountPath: /etc/slicebus/job-kinds, readOnly: true}
            {{- end }}
            {{- with $mounts }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with $values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- end }}
      {{- $volumes := include "slicebus.amqpVolumes" $root | trim }}
      {{- if or $volumes $values.extraVolumes .policy $values.declaredJobKinds }}
      volumes:
        {{- if .policy }}
        - name: policy
          configMap: {name: {{ include "slicebus.name" $root }}-policy}
        {{- end }}
        {{- if $values.declaredJobKinds }}
        - name: job-kinds
          configMap: {name: {{ include "slicebus.name" $root }}-job-kinds}
        {{- end }}
        {{- with $volumes }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "slicebus.selector" $root | nindent 14 }}
{{- end }}
