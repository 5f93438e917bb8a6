{{/* Labels of every object of the chart: `list $ "component"`, and further ones of this object. The own ones win. */}}
{{- define "cloister.labels" -}}
{{- $root := index . 0 -}}
{{- $own := dict
  "app.kubernetes.io/name" "cloister"
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/component" (index . 1)
  "app.kubernetes.io/part-of" "cloister"
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")
-}}
{{- $further := dict -}}
{{- if gt (len .) 2 -}}{{- $further = index . 2 | default dict -}}{{- end -}}
{{- merge $own $further $root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* Annotations of an object, where it has any: `list $ annotations`. */}}
{{- define "cloister.annotations" -}}
{{- with merge (dict) (index . 1 | default dict) (index . 0).Values.commonAnnotations -}}
annotations: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/*
Metadata of an object: `dict "root" $ "name" "cloister-api" "component" "api"`, with further `labels`
and `annotations`, and another `namespace`; an empty one is that of an object of the cluster.
*/}}
{{- define "cloister.metadata" -}}
name: {{ .name }}
{{- with ternary .namespace .root.Release.Namespace (hasKey . "namespace") }}
namespace: {{ . }}
{{- end }}
labels: {{- include "cloister.labels" (list .root .component .labels) | nindent 2 }}
{{ include "cloister.annotations" (list .root .annotations) }}
{{- end -}}

{{/* The labels by which Pods are selected, which never change: `list $ "component"`. */}}
{{- define "cloister.selector" -}}
app.kubernetes.io/name: cloister
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Reference of an image: `list $ "name"`. A digest counts before a tag. */}}
{{- define "cloister.image" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $image := index $root.Values.images $name -}}
{{- $lock := include "cloister.lock" $root | fromJson -}}
{{- $registry := $root.Values.global.imageRegistry | default $image.registry | default (dig "registry" "" $lock) -}}
{{- if not $registry -}}
{{- fail (printf "global.imageRegistry is required: name the registry that holds the images of Cloister, or set images.%s.registry" $name) -}}
{{- end -}}
{{- $locked := dig "digests" (ternary $name (printf "cloister-%s" $name) (eq $name "cloister")) "" $lock -}}
{{- $digest := $image.digest | default (ternary "" $locked (ne $image.tag "")) -}}
{{- if $digest -}}
{{- printf "%s/%s@%s" $registry $image.repository $digest -}}
{{- else if eq $name "cloister" -}}
{{- printf "%s/%s:%s" $registry $image.repository ($image.tag | default $root.Chart.AppVersion) -}}
{{- else -}}
{{- fail (printf "images.%s.digest is required: enclaves are measured with it, so that a tag is not enough" $name) -}}
{{- end -}}
{{- end -}}

{{/* The images that the chart was packaged with (`make chart`): their digests and registry, as JSON. */}}
{{- define "cloister.lock" -}}
{{- .Files.Get "images.lock" | fromToml | toJson -}}
{{- end -}}

{{/* The Secret with the keys of the installation. */}}
{{- define "cloister.keys" -}}
{{- .Values.keys.existingSecret | default "cloister-keys" -}}
{{- end -}}

{{/* The Secret with the own authority. */}}
{{- define "cloister.authority" -}}
{{- .Values.authority.existingSecret | default "cloister-authority" -}}
{{- end -}}

{{/* Refuse to make a Secret where the cluster is not visible: each rendering would make another one. `list $ "value"` */}}
{{- define "cloister.sees" -}}
{{- if not (lookup "v1" "Namespace" "" "kube-system") -}}
{{- fail (printf "%s is required where Helm does not see the cluster (helm template, Argo CD, --dry-run=client): each rendering would make another Secret. Create one and name it; or install with helm install, or look with --dry-run=server" (index . 1)) -}}
{{- end -}}
{{- end -}}

{{/*
Annotations of a Secret that is made once. The default of a hook is to be deleted before it is made.
By the policy `keep`, `cloister restore` knows what the chart made, and puts the backup's in its place.
*/}}
{{- define "cloister.madeOnce" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-delete-policy: hook-failed
helm.sh/hook-weight: "-10"
helm.sh/resource-policy: keep
{{- end -}}

{{/*
Settings with a path in place of each file reference, as JSON: `dict "value" … "files" dict`.
What is referred to is collected in "files".
*/}}
{{- define "cloister.resolved" -}}
{{- $value := .value -}}
{{- $files := .files -}}
{{- if kindIs "map" $value -}}
{{- if and (hasKey $value "key") (or (hasKey $value "secret") (hasKey $value "configMap")) -}}
{{- $kind := ternary "secret" "configMap" (hasKey $value "secret") -}}
{{- $path := printf "%s/%s/%s" $kind (index $value $kind) $value.key -}}
{{- $_ := set $files $path $value -}}
{{- printf "/etc/cloister/files/%s" $path | toJson -}}
{{- else -}}
{{- $made := dict -}}
{{- range $name, $each := $value -}}
{{- $inner := include "cloister.resolved" (dict "value" $each "files" $files) -}}
{{- $_ := set $made $name (printf "{\"v\":%s}" $inner | fromJson).v -}}
{{- end -}}
{{- $made | toJson -}}
{{- end -}}
{{- else if kindIs "slice" $value -}}
{{- $made := list -}}
{{- range $each := $value -}}
{{- $inner := include "cloister.resolved" (dict "value" $each "files" $files) -}}
{{- $made = append $made (printf "{\"v\":%s}" $inner | fromJson).v -}}
{{- end -}}
{{- $made | toJson -}}
{{- else -}}
{{- $value | toJson -}}
{{- end -}}
{{- end -}}

{{/* Sources of the volume with the files of settings. `dict "files" …` */}}
{{- define "cloister.fileSources" -}}
{{- range $path, $file := .files }}
{{- if hasKey $file "secret" }}
- secret:
    name: {{ $file.secret }}
{{- else }}
- configMap:
    name: {{ $file.configMap }}
{{- end }}
    items:
    - {key: {{ $file.key | quote }}, path: {{ $path | quote }}}
{{- end }}
{{- end -}}

{{/* What both Pods have: `dict "root" $ "program" "operator" "values" .Values.operator`. */}}
{{- define "cloister.pod" -}}
serviceAccountName: {{ .values.serviceAccount.name }}
# Also where the account itself gives its token to nobody.
automountServiceAccountToken: true
securityContext: {{- toYaml .values.podSecurityContext | nindent 2 }}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $field := tuple "priorityClassName" "nodeSelector" "tolerations" "affinity" "hostAliases" "dnsPolicy" "dnsConfig" "runtimeClassName" }}
{{- with index $.values $field }}
{{ $field }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- if kindIs "slice" .values.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml .values.topologySpreadConstraints | nindent 2 }}
{{- else }}
topologySpreadConstraints:
{{- range tuple "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "cloister.selector" (list $.root $.program) | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What the containers of both have: `dict "root" $ "program" "operator" "values" .Values.operator`. */}}
{{- define "cloister.container" -}}
image: {{ include "cloister.image" (list .root "cloister") | quote }}
imagePullPolicy: {{ .root.Values.imagePullPolicy }}
args: [{{ .program }}]
securityContext: {{- toYaml .values.securityContext | nindent 2 }}
env:
# Also for the commands that are run in the Pod.
- {name: CLOISTER_CONFIG, value: /etc/cloister/config/{{ .program }}.yaml}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
resources: {{- toYaml .values.resources | nindent 2 }}
{{- end -}}

{{/* A container that checks something once: `dict "root" $ "args" list "values" .Values.api`. */}}
{{- define "cloister.checkContainer" -}}
image: {{ include "cloister.image" (list .root "cloister") | quote }}
imagePullPolicy: {{ .root.Values.imagePullPolicy }}
args: {{- toYaml .args | nindent 0 }}
# Its last words are the reason that Helm's user is shown.
terminationMessagePolicy: FallbackToLogsOnError
securityContext: {{- toYaml .values.securityContext | nindent 2 }}
{{- with .values.extraEnv }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 256Mi}
{{- end -}}

{{/* Probes of a program: `dict "port" "http" "values" .Values.api`. */}}
{{- define "cloister.probes" -}}
{{- range $probe, $path := dict "startup" "/healthz" "liveness" "/healthz" "readiness" "/readyz" }}
{{ $probe }}Probe:
  httpGet: {path: {{ $path }}, port: {{ $.port }}}
  {{- toYaml (index $.values.probes $probe) | nindent 2 }}
{{- end }}
{{- end -}}

{{/* PodDisruptionBudget of a program: `dict "root" $ "program" "api" "values" .Values.api`. */}}
{{- define "cloister.disruptionBudget" -}}
{{- with .values.podDisruptionBudget }}
{{- if .enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "cloister.metadata" (dict "root" $.root "name" (printf "cloister-%s" $.program) "component" $.program) | nindent 2 }}
spec:
  {{- if kindIs "invalid" .minAvailable }}
  maxUnavailable: {{ .maxUnavailable }}
  {{- else }}
  minAvailable: {{ .minAvailable }}
  {{- end }}
  {{- with .unhealthyPodEvictionPolicy }}
  unhealthyPodEvictionPolicy: {{ . }}
  {{- end }}
  selector:
    matchLabels: {{- include "cloister.selector" (list $.root $.program) | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Volumes and mounts of both: settings, the files that they name, a directory for git. */}}
{{- define "cloister.mounts" -}}
- {name: config, mountPath: /etc/cloister/config, readOnly: true}
{{- if .files }}
- {name: files, mountPath: /etc/cloister/files, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- define "cloister.volumes" -}}
- name: config
  downwardAPI:
    items:
    - path: {{ .program }}.yaml
      fieldRef: {fieldPath: "metadata.annotations['cloister.dev/settings']"}
{{- if .files }}
- name: files
  projected:
    # Its group is that of the Pod (fsGroup): nobody else may read it.
    defaultMode: 0440
    sources: {{- include "cloister.fileSources" . | nindent 4 }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .values.temporarySize }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
