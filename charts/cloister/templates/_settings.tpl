{{/*
The settings of both programs, as they read them, and the files that these name:
a JSON object with `settings` and `files`.
*/}}

{{- define "cloister.operatorSettings" -}}
{{- $domain := required "containersDomain is required: the domain of generated host names, such as containers.example.com" .Values.containersDomain -}}
{{- $settings := deepCopy .Values.operator.settings -}}
{{- $own := dict
  "containersDomain" $domain
  "sources" .Values.sources
  "registry" .Values.registry
  "guestImage" (include "cloister.image" (list . "guest"))
  "shimImage" (include "cloister.image" (list . "shim"))
  "operatorNamespace" .Release.Namespace
  "accounts" (dict "operator" .Values.operator.serviceAccount.name "api" .Values.api.serviceAccount.name)
  "health" (merge (dict "host" "0.0.0.0" "port" 8081) ($settings.health | default dict))
-}}
{{- if $settings.domains -}}
{{- $key := dict "installationKeyFile" (dict "secret" (include "cloister.keys" .) "key" "installation-key") -}}
{{- $_ := set $own "domains" (merge $key $settings.domains) -}}
{{- end -}}
{{- include "cloister.program" (dict "own" $own "settings" $settings) -}}
{{- end -}}

{{- define "cloister.apiSettings" -}}
{{- $settings := deepCopy .Values.api.settings -}}
{{- $ledger := dict "keyMaterial" (dict "secret" (include "cloister.keys" .) "key" "key-material") -}}
{{- if .Values.ledger.postgresql.existingSecret -}}
{{- $_ := set $ledger "urlFile" (dict "secret" .Values.ledger.postgresql.existingSecret "key" .Values.ledger.postgresql.key) -}}
{{- else -}}
{{- $_ := set $ledger "path" "/var/lib/cloister/ledger.sqlite" -}}
{{- end -}}
{{- $own := dict
  "operatorNamespace" .Release.Namespace
  "sources" (omit .Values.sources "fileNames" "maxFileBytes")
  "registry" (omit .Values.registry "maxImageBytes")
  "ledger" $ledger
  "listen" (dict "host" "0.0.0.0" "port" 8080)
  "metrics" (dict "host" "0.0.0.0" "port" 9090)
-}}
{{- if $settings.dashboard -}}
{{- $place := dict "listen" (dict "host" "0.0.0.0" "port" 8090) -}}
{{- $_ := set $own "dashboard" (merge $place $settings.dashboard) -}}
{{- end -}}
{{- if .Values.authority.enabled -}}
{{- $given := $settings.certificates | default dict -}}
{{- $named := $given.own | default dict -}}
{{- if or $given.issuer $given.acme $named.certificate $named.key -}}
{{- fail "authority.enabled and api.settings.certificates both say who signs the certificates of enclaves: with it leave out issuer, acme, own.certificate and own.key" -}}
{{- end -}}
{{- $secret := include "cloister.authority" . -}}
{{- $_ := set $own "certificates" (dict "issuer" "own" "own" (dict
  "certificate" (dict "secret" $secret "key" "tls.crt")
  "key" (dict "secret" $secret "key" "tls.key")
)) -}}
{{- else if and $settings.certificates (not $settings.certificates.issuer) -}}
{{- fail "api.settings.certificates.issuer is required without authority.enabled: own or acme" -}}
{{- end -}}
{{- include "cloister.program" (dict "own" $own "settings" $settings) -}}
{{- end -}}

{{- define "cloister.program" -}}
{{- $files := dict -}}
{{- $value := merge .own .settings -}}
{{- $settings := include "cloister.resolved" (dict "value" $value "files" $files) | fromJson -}}
{{- dict "settings" $settings "files" $files | toJson -}}
{{- end -}}

{{/* Replicas of the API; empty = an autoscaler has them. */}}
{{- define "cloister.apiReplicas" -}}
{{- $sqlite := not .Values.ledger.postgresql.existingSecret -}}
{{- $wanted := .Values.api.replicas | default (ternary 1 2 $sqlite) | int -}}
{{- if and $sqlite (or .Values.api.autoscaling.enabled (gt $wanted 1)) -}}
{{- fail "api: more than one replica needs ledger.postgresql.existingSecret, since SQLite is a file that one Pod writes" -}}
{{- end -}}
{{- if not .Values.api.autoscaling.enabled -}}{{- $wanted -}}{{- end -}}
{{- end -}}
