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

{{/* Whether old and new Labels or Notes (annotations) have the same of ours. Called with which. */}}
{{- define "slicebus.keepsOurs" -}}
variables.new{{ . }}.all(name, !name.startsWith('slicebus.dev/') || variables.old{{ . }}[?name] == variables.new{{ . }}[?name]) && variables.old{{ . }}.all(name, !name.startsWith('slicebus.dev/') || name in variables.new{{ . }})
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

{{/* Whether the owner is of a kind beside Job and those of Ray. */}}
{{- define "slicebus.ownedByMore" -}}
{{- range $number, $kind := . }}{{ if gt $number 3 -}}
|| {{ if .group }}owner.apiVersion.startsWith('{{ .group }}/'){{ else }}owner.apiVersion == 'v1'{{ end }} && variables.controls{{ $number }}
{{ end }}{{ end }}
{{- end }}
