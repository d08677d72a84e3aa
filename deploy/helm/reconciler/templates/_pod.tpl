{{/*
What all pods have in common: the login, the settings, the secrets as files, no write but to memory and volumes.
Call with (dict "root" $ "component" "run" "values" .Values.run), in the place of a pod's spec.
*/}}
{{- define "reconciler.pod" -}}
{{- $root := .root }}
serviceAccountName: {{ include "reconciler.name" $root }}
automountServiceAccountToken: false
# Variables of services would begin with RECONCILER_, and an unknown one is an error of the settings.
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "reconciler.container" -}}
{{- $root := .root }}
name: {{ .component }}
image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
{{- range $setting, $key := .values.secretFiles }}
  - name: RECONCILER_{{ $setting | replace "." "__" | upper }}_FILE
    value: /run/secrets/reconciler/{{ $key }}
{{- end }}
{{- end }}

{{- define "reconciler.mounts" -}}
- {name: settings, mountPath: /etc/reconciler, readOnly: true}
- {name: secrets, mountPath: /run/secrets/reconciler, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "reconciler.volumes" -}}
- name: settings
  configMap: {name: {{ .settings | default (include "reconciler.name" .root) }}}
- name: secrets
  secret:
    secretName: {{ required (printf "%s.existingSecret: name a Secret with the keys %s" .component (values .values.secretFiles | sortAlpha | join ", ")) .values.existingSecret }}
    defaultMode: 0440
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end }}

{{- define "reconciler.annotations" -}}
checksum/settings: {{ .Values.settings | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}
