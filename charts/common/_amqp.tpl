{{/* The connection to the broker, shared by both charts: each has a link to this file. */}}

{{/* Refuses what the role would refuse at its start, where the chart can see the address. */}}
{{- define "slicebus.amqpCheck" -}}
{{- $amqp := .Values.amqp -}}
{{- if and $amqp.url (not $amqp.existingSecret.name) -}}
{{- $authority := regexFind "^[^/?#]*" (regexReplaceAll "^amqps?://" $amqp.url "") -}}
{{- $host := regexReplaceAll "^.*@" $authority "" -}}
{{- if and (hasPrefix "amqp://" $amqp.url) (ne $amqp.insecure "plaintext") -}}
{{- range $amqp.hosts | default (list $host) -}}
{{- if not (regexMatch "^(localhost|127\\.[0-9]+\\.[0-9]+\\.[0-9]+|\\[::1\\])(:[0-9]+)?$" .) -}}
{{- fail (printf "amqp.url: plain amqp:// to %s shows the password and every message to whoever is on the way: use amqps://, or set amqp.insecure=plaintext" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (regexMatch "[?&]no_verify_ssl=([^0&]|0[^&])" $amqp.url) (ne $amqp.insecure "unverified") -}}
{{- fail "amqp.url: no_verify_ssl takes whoever answers for the broker: remove it, and name the broker's authority in amqp.caSecret, or set amqp.insecure=unverified" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The variables beside AMQP_URL. */}}
{{- define "slicebus.amqpVariables" -}}
{{- $amqp := .Values.amqp -}}
{{- with $amqp.hosts }}
- name: SLICEBUS_AMQP_HOSTS
  value: {{ join "," . | quote }}
{{- end }}
{{- with $amqp.insecure }}
- name: SLICEBUS_AMQP_INSECURE
  value: {{ . }}
{{- end }}
{{- if $amqp.caSecret.name }}
- name: SLICEBUS_AMQP_CA_FILE
  value: /etc/slicebus/amqp-ca/{{ $amqp.caSecret.key }}
{{- end }}
{{- if $amqp.certSecret.name }}
- name: SLICEBUS_AMQP_CERT_FILE
  value: /etc/slicebus/amqp-cert/{{ $amqp.certSecret.certKey }}
- name: SLICEBUS_AMQP_KEY_FILE
  value: /etc/slicebus/amqp-cert/{{ $amqp.certSecret.keyKey }}
{{- end }}
{{- if $amqp.passwordSecret.name }}
- name: SLICEBUS_AMQP_PASSWORD_FILE
  value: /etc/slicebus/amqp-password/{{ $amqp.passwordSecret.key }}
{{- end }}
{{- end }}

{{/* The Secrets that are mounted, by the name of their volume. Whole Secrets: the kubelet updates no subPath. */}}
{{- define "slicebus.amqpMounts" -}}
{{- range $volume, $secret := include "slicebus.amqpSecrets" . | fromYaml }}
- {name: {{ $volume }}, mountPath: /etc/slicebus/{{ $volume }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "slicebus.amqpVolumes" -}}
{{- range $volume, $secret := include "slicebus.amqpSecrets" . | fromYaml }}
- name: {{ $volume }}
  secret: {secretName: {{ $secret }}}
{{- end }}
{{- end }}

{{- define "slicebus.amqpSecrets" -}}
{{- range $volume, $secret := dict "amqp-ca" .Values.amqp.caSecret.name "amqp-cert" .Values.amqp.certSecret.name "amqp-password" .Values.amqp.passwordSecret.name }}
{{- if $secret }}
{{ $volume }}: {{ $secret | quote }}
{{- end }}
{{- end }}
{{- end }}
