{{/* `slicebus view` behind the user's auth proxy. The names and labels of its objects. */}}

{{- define "slicebus.viewName" -}}
{{ include "slicebus.name" . }}-view
{{- end }}

{{- define "slicebus.viewSelector" -}}
app.kubernetes.io/name: {{ include "slicebus.viewName" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slicebus.viewLabels" -}}
{{- merge (include "slicebus.viewSelector" . | fromYaml) (include "slicebus.labels" . | fromYaml) | toYaml }}
{{- end }}

{{/* The connection to the broker without what is the manager's own: its certificate and its password. */}}
{{- define "slicebus.viewAmqp" -}}
{{- $amqp := pick .Values.amqp "hosts" "insecure" "caSecret" -}}
{{- dict "Values" (dict "amqp" (merge $amqp (dict "certSecret" (dict) "passwordSecret" (dict)))) | toJson }}
{{- end }}

{{/* Refuses what would let everybody in, or nobody. */}}
{{- define "slicebus.viewCheck" -}}
{{- if not .Values.view.proxy.image -}}
{{- fail "view.enabled needs view.proxy.image, your own auth proxy, such as oauth2-proxy: the view has no login, and nobody may reach it without one" -}}
{{- end -}}
{{- if not .Values.view.host -}}
{{- fail "view.enabled needs view.host, the name by which people open it, such as slicebus.example.com" -}}
{{- end -}}
{{- if eq (int .Values.view.proxy.port) 8439 -}}
{{- fail "view.proxy.port: 8439 is the view's own port, choose another" -}}
{{- end -}}
{{- end }}
