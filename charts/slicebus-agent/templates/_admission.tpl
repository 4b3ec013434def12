{{/* Parts of the ValidatingAdmissionPolicies. */}}

{{- define "slicebus.policyBinding" }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "slicebus.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: {{- toYaml .root.Values.admissionPolicies.actions | nindent 4 }}
  {{- if and .others .root.Values.namespaces }}
  # Elsewhere another agent may work.
  matchResources:
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: In
          values: {{- toYaml .root.Values.namespaces | nindent 12 }}
  {{- end }}
{{- end }}

{{- define "slicebus.notTheAgent" -}}
- name: is-not-the-agent
  expression: request.userInfo.username != {{ .account | squote }}
{{- with .root.Values.admissionPolicies.exemptUsers }}
- name: is-not-exempt
  expression: "!(request.userInfo.username in ['{{ join "', '" . }}'])"
{{- end }}
{{- end }}

{{/* Whether the agent makes a job, or upgrades a RayService, as a service account of the namespace (policy.createAs). Only who
     has the right to impersonate the extra can set it: the account alone is a tenant like any other. */}}
{{- define "slicebus.createsAs" -}}
(request.operation == 'CREATE' && request.resource.resource != 'workloads' || request.operation == 'UPDATE' && request.resource.resource == 'rayservices' && request.?subResource.orValue('') == '') && request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':{{ .Values.policy.createAs }}' && '{{ .Release.Namespace }}' in request.userInfo.?extra[?'slicebus.dev/agent'].orValue([])
{{- end }}

{{/* Whether old and new Labels or Notes (annotations) have the same of ours. Called with which. Who may change a job may acknowledge
     its notice. */}}
{{- define "slicebus.keepsOurs" -}}
variables.new{{ . }}.all(name, !name.startsWith('slicebus.dev/') || name == 'slicebus.dev/reclaim-ack' || variables.old{{ . }}[?name] == variables.new{{ . }}[?name]) && variables.old{{ . }}.all(name, !name.startsWith('slicebus.dev/') || name == 'slicebus.dev/reclaim-ack' || name in variables.new{{ . }})
{{- end }}

{{/* The pod templates of a job. Called with a dict: of, the variable that holds it, and root. */}}
{{- define "slicebus.podTemplates" -}}
(request.resource.group == 'batch' && request.resource.resource == 'jobs' ? [{{ .of }}.spec.template] : request.resource.group == 'ray.io' && request.resource.resource == 'rayclusters' ? [{{ .of }}.spec.headGroupSpec.template] + {{ .of }}.spec.?workerGroupSpecs.orValue([]).map(group, group.template) : request.resource.group == 'ray.io' && request.resource.resource == 'rayjobs' ? ({{ .of }}.spec.?rayClusterSpec.hasValue() ? [{{ .of }}.spec.rayClusterSpec.headGroupSpec.template] + {{ .of }}.spec.rayClusterSpec.?workerGroupSpecs.orValue([]).map(group, group.template) : []) + ({{ .of }}.spec.?submitterPodTemplate.hasValue() ? [{{ .of }}.spec.submitterPodTemplate] : []) : request.resource.group == 'ray.io' && request.resource.resource == 'rayservices' ? [{{ .of }}.spec.rayClusterConfig.headGroupSpec.template] + {{ .of }}.spec.rayClusterConfig.?workerGroupSpecs.orValue([]).map(group, group.template) : [])
{{- range .root.Values.declaredJobKinds }}
{{- $declared := . }}
{{- $group := contains "/" .apiVersion | ternary (splitList "/" .apiVersion | first) "" }}
{{- range .podSets }}
{{- $path := splitList "." .templatePath | join ".?" }} + (request.resource.group == '{{ $group }}' && request.resource.resource == '{{ $declared.plural }}' ?
{{- if .listPath }} {{ $.of }}.?{{ splitList "." .listPath | join ".?" }}.orValue([]).filter(entry, entry.?{{ $path }}.hasValue()).map(entry, entry.{{ .templatePath }})
{{- else }} [?{{ $.of }}.?{{ $path }}]
{{- end }} : [])
{{- end }}
{{- end }}
{{- range include "slicebus.between" .root | fromYamlArray }} + (request.resource.group == '{{ .group }}' && request.resource.resource == '{{ .plural }}' ? [?{{ $.of }}.?spec.?template] : [])
{{- end }}
{{- end }}

{{/* The kinds between a declared job and its pods, as a ReplicaSet is, that are no job kinds themselves: a list of group and plural. */}}
{{- define "slicebus.between" -}}
{{- $jobs := concat (list (dict "group" "batch" "plural" "jobs")) (include "slicebus.moreKinds" . | fromYamlArray) }}
{{- $between := list }}
{{- range .Values.declaredJobKinds }}
{{- range .madeBy | default list }}
{{- if not (has . $jobs) }}{{ $between = append $between . }}{{ end }}
{{- end }}
{{- end }}
{{- toYaml (uniq $between) }}
{{- end }}

{{/* Strings as a list in CEL. */}}
{{- define "slicebus.celList" -}}
[{{ range $number, $name := . }}{{ if $number }}, {{ end }}'{{ $name | replace "\\" "\\\\" | replace "'" "\\'" }}'{{ end }}]
{{- end }}

{{/* The names of schedulers that pods may have by the agent's own backends. */}}
{{- define "slicebus.schedulerNames" -}}
{{- $names := concat (list "" "default-scheduler") (.Values.policy.schedulerNames | default list) }}
{{- range .Values.schedulers }}
{{- $usual := get (dict "kai" "kai-scheduler" "volcano" "volcano") .name | default "" }}
{{- $names = append $names (.schedulerName | default $usual) }}
{{- end }}
{{- include "slicebus.celList" (uniq $names) }}
{{- end }}

{{/* The specs of the RayClusters of a job. Called with the variable that holds it. */}}
{{- define "slicebus.clusterSpecs" -}}
(request.resource.group != 'ray.io' ? [] : request.resource.resource == 'rayclusters' ? [{{ . }}.spec] : request.resource.resource == 'rayjobs' ? [?{{ . }}.spec.?rayClusterSpec] : request.resource.resource == 'rayservices' ? [{{ . }}.spec.rayClusterConfig] : [])
{{- end }}

{{/* The labels that KubeRay gives the pods of a cluster's groups beside those of their templates, which they replace. Called with the
     variable that holds the specs of the clusters. */}}
{{- define "slicebus.groupLabels" -}}
{{ . }}.map(spec, spec.headGroupSpec.?labels.orValue({})) + ({{ . }}.size() == 0 ? [] : {{ . }}[0].?workerGroupSpecs.orValue([]).map(group, group.?labels.orValue({})))
{{- end }}

{{/* What KubeRay makes of a job beside its pods, in words. Called with a dict: of, the variable that holds the job, and specs, the
     one that holds its clusters' specs. */}}
{{- define "slicebus.exposed" -}}
{{ .specs }}.filter(spec, spec.headGroupSpec.?enableIngress.orValue(false)).map(spec, 'an Ingress')
+ {{ .specs }}.filter(spec, spec.?enableInTreeAutoscaling.orValue(false)).map(spec, 'an account')
+ {{ .specs }}.map(spec, 'type ' + spec.headGroupSpec.?serviceType.orValue('ClusterIP'))
+ {{ .specs }}.map(spec, 'type ' + spec.headGroupSpec.?headService.?spec.?type.orValue(''))
+ {{ .specs }}.filter(spec, spec.headGroupSpec.?headService.?spec.?externalIPs.orValue([]).size() > 0).map(spec, 'type of its own addresses')
+ {{ .specs }}.map(spec, 'name ' + spec.headGroupSpec.?headService.?metadata.?name.orValue(''))
+ (request.resource.resource != 'rayservices' ? []
: ({{ .of }}.spec.?upgradeStrategy.?type.orValue('') == 'NewClusterWithIncrementalUpgrade' ? ['a Gateway'] : [])
+ ['type ' + {{ .of }}.spec.?serveService.?spec.?type.orValue('')]
+ ({{ .of }}.spec.?serveService.?spec.?externalIPs.orValue([]).size() > 0 ? ['type of its own addresses'] : [])
+ ['name ' + {{ .of }}.spec.?serveService.?metadata.?name.orValue('')])
{{- end }}

{{/* What the cluster's policy says of pods and of what KubeRay makes, as far as CEL can say it. */}}
{{- define "slicebus.policyValidations" -}}
{{- $policy := .Values.policy }}
{{- if kindIs "slice" $policy.priorityClasses }}
- expression: {{ printf "variables.judged.all(pod, pod.?priorityClassName.orValue('') in %s)" (include "slicebus.celList" (concat (list "") $policy.priorityClasses)) | quote }}
{{- else }}
- expression: "variables.judged.all(pod, !pod.?priorityClassName.orValue('').startsWith('system-'))"
{{- end }}
  message: "slicebus: the policy of this cluster does not allow this PriorityClass (priorityClasses)"
  reason: Forbidden
{{- if kindIs "slice" $policy.tolerationKeys }}
- expression: {{ printf "variables.judged.all(pod, pod.?tolerations.orValue([]).all(one, one.?key.orValue('') in %s))" (include "slicebus.celList" $policy.tolerationKeys) | quote }}
{{- else }}
- expression: "variables.judged.all(pod, pod.?tolerations.orValue([]).all(one, one.?key.orValue('') != '' && !one.key.startsWith('node-role.kubernetes.io/')))"
{{- end }}
  message: "slicebus: the policy of this cluster does not allow this toleration (tolerationKeys)"
  reason: Forbidden
{{- if kindIs "slice" $policy.runtimeClasses }}
- expression: {{ printf "variables.judged.all(pod, pod.?runtimeClassName.orValue('') in %s)" (include "slicebus.celList" (concat (list "") $policy.runtimeClasses)) | quote }}
  message: "slicebus: the policy of this cluster does not allow this RuntimeClass (runtimeClasses)"
  reason: Forbidden
{{- end }}
{{- if kindIs "slice" $policy.schedulerNames }}
- expression: {{ printf "variables.judged.all(pod, pod.?schedulerName.orValue('') in %s)" (include "slicebus.schedulerNames" .) | quote }}
  message: "slicebus: the policy of this cluster does not allow this scheduler (schedulerNames)"
  reason: Forbidden
{{- end }}
{{- if kindIs "slice" $policy.csiDrivers }}
- expression: >-
    variables.judged.all(pod, pod.?volumes.orValue([]).all(volume,
    (!volume.?csi.hasValue() || volume.csi.?driver.orValue('') in {{ include "slicebus.celList" $policy.csiDrivers }})
    && (!volume.?flexVolume.hasValue() || volume.flexVolume.?driver.orValue('') in {{ include "slicebus.celList" $policy.csiDrivers }})))
  message: "slicebus: the policy of this cluster does not allow a volume of this driver (csiDrivers)"
  reason: Forbidden
{{- end }}
{{- if kindIs "slice" $policy.serviceAccounts }}
- expression: >-
    variables.judged.all(pod, [pod.?serviceAccountName.orValue(''), pod.?serviceAccount.orValue(''), dyn('default')].filter(name, name != '')[0]
    in {{ include "slicebus.celList" $policy.serviceAccounts }})
  message: "slicebus: the policy of this cluster does not allow this service account (serviceAccounts)"
  reason: Forbidden
{{- end }}
{{- if not $policy.ingress }}
- expression: "!variables.exposed.exists(one, one in ['an Ingress', 'a Gateway'])"
  message: "slicebus: the policy of this cluster does not allow an Ingress or a Gateway (ingress)"
  reason: Forbidden
{{- end }}
- expression: >-
    variables.exposed.all(one, !one.startsWith('type ') || one.substring(5) in {{ include "slicebus.celList" (concat (list "") $policy.serviceTypes) }})
  message: "slicebus: the policy of this cluster does not allow a Service of this type (serviceTypes)"
  reason: Forbidden
{{- if kindIs "slice" $policy.serviceNames }}
- expression: >-
    variables.exposed.all(one, !one.startsWith('name ') || one.substring(5) in
    ['', object.metadata.name + '-head-svc', object.metadata.name + '-serve-svc'] + {{ include "slicebus.celList" $policy.serviceNames }})
  message: "slicebus: the policy of this cluster does not allow a Service of this name (serviceNames)"
  reason: Forbidden
{{- end }}
{{- $accounts := $policy.autoscalerAccounts }}
{{- if kindIs "invalid" $accounts }}{{ $accounts = not (kindIs "slice" $policy.serviceAccounts) }}{{ end }}
{{- if not $accounts }}
- expression: "!('an account' in variables.exposed)"
  message: "slicebus: the policy of this cluster does not allow the service account of Ray's autoscaler (autoscalerAccounts)"
  reason: Forbidden
{{- end }}
{{- end }}

{{/* Whether the pods of a template wait behind our gate, and carry the label by which that is kept. */}}
{{- define "slicebus.isHeld" -}}
{{ . }}.?spec.?schedulingGates.orValue([]).exists(gate, gate.name == 'kueue.x-k8s.io/elastic-job') && 'slicebus.dev/manager-uid' in {{ . }}.?metadata.?labels.orValue({})
{{- end }}

{{/* The old and the new labels and annotations, as variables. */}}
{{- define "slicebus.oldAndNew" -}}
- name: isNew
  expression: request.operation == 'CREATE'
- name: oldLabels
  expression: "variables.isNew ? {} : oldObject.metadata.?labels.orValue({})"
- name: newLabels
  expression: object.metadata.?labels.orValue({})
- name: oldNotes
  expression: "variables.isNew ? {} : oldObject.metadata.?annotations.orValue({})"
- name: newNotes
  expression: object.metadata.?annotations.orValue({})
{{- end }}

{{/* Whether the creator may update the status of each kind in all namespaces. One variable each: an expression may ask the
     authorizer twice at most. */}}
{{- define "slicebus.controls" -}}
{{- range $number, $kind := . }}
- name: controls{{ $number }}
  expression: authorizer.group('{{ .group }}').resource('{{ .plural }}').subresource('status').check('update').allowed()
{{- end }}
{{- end }}

{{/* Whether the creator controls a kind beside Job and those of Ray. Called with the makers. */}}
{{- define "slicebus.controlsMore" -}}
{{- range $number, $kind := . }}{{ if gt $number 3 }} || variables.controls{{ $number }}{{ end }}{{ end }}
{{- end }}

{{/* Whether the owner is of a kind beside Job and those of Ray. */}}
{{- define "slicebus.ownedByMore" -}}
{{- range $number, $kind := . }}{{ if gt $number 3 -}}
|| {{ if .group }}owner.apiVersion.startsWith('{{ .group }}/'){{ else }}owner.apiVersion == 'v1'{{ end }} && variables.controls{{ $number }}
{{ end }}{{ end }}
{{- end }}
