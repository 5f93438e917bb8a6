{{/*
A Service of the API's Pods, and what leads to it from outside: `dict "root" $ "name" "cloister-api"
"target" "http" "service" … "ingress" … "route" … "host" ""`. Ingress and route have the hosts that
they name, or the one given.
*/}}
{{- define "cloister.served" -}}
{{- $all := . -}}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "cloister.metadata" (dict "root" .root "name" .name "component" "api" "labels" .service.labels "annotations" .service.annotations) | nindent 2 }}
spec:
  {{- range $field := tuple "type" "loadBalancerClass" "externalTrafficPolicy" }}
  {{- with index $all.service $field }}
  {{ $field }}: {{ . }}
  {{- end }}
  {{- end }}
  selector: {{- include "cloister.selector" (list .root "api") | nindent 4 }}
  ports:
  - name: http
    port: {{ .service.port }}
    targetPort: {{ .target }}
    {{- with .service.nodePort }}
    nodePort: {{ . }}
    {{- end }}
{{- with .ingress }}
{{- if .enabled }}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  {{- include "cloister.metadata" (dict "root" $all.root "name" $all.name "component" "api" "labels" .labels "annotations" .annotations) | nindent 2 }}
spec:
  {{- with .className }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- with .tls }}
  tls: {{- toYaml . | nindent 2 }}
  {{- end }}
  rules:
  {{- range include "cloister.hosts" (list $all.name "Ingress" .hosts $all.host) | fromJsonArray }}
  - host: {{ . }}
    http:
      paths:
      - path: /
        pathType: Prefix
        backend: {service: {name: {{ $all.name }}, port: {name: http}}}
  {{- end }}
{{- end }}
{{- end }}
{{- with .route }}
{{- if .enabled }}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {{- include "cloister.metadata" (dict "root" $all.root "name" $all.name "component" "api" "labels" .labels "annotations" .annotations) | nindent 2 }}
spec:
  {{- if not .parentRefs }}
  {{- fail (printf "the HTTPRoute %s has no parentRefs: name the Gateway that it belongs to" $all.name) }}
  {{- end }}
  parentRefs: {{- toYaml .parentRefs | nindent 2 }}
  hostnames: {{- include "cloister.hosts" (list $all.name "HTTPRoute" .hosts $all.host) | fromJsonArray | toYaml | nindent 2 }}
  rules:
  - backendRefs:
    - {name: {{ $all.name }}, port: {{ $all.service.port }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* The hosts of an Ingress or a route, as JSON: `list "name" "kind" hosts "other host"`. */}}
{{- define "cloister.hosts" -}}
{{- $hosts := index . 2 | default (compact (list (index . 3))) -}}
{{- if not $hosts -}}
{{- fail (printf "the %s %s has no hosts: name at least one" (index . 1) (index . 0)) -}}
{{- end -}}
{{- $hosts | toJson -}}
{{- end -}}
