{{- define "shardwright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "shardwright.fullname" -}}
{{- $name := include "shardwright.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Cluster-wide objects of two namespaced installs must not collide. */}}
{{- define "shardwright.clusterName" -}}
{{- if eq .Values.scope "Namespaced" }}
{{- printf "%s-%s" (include "shardwright.fullname" .) .Release.Namespace }}
{{- else }}
{{- include "shardwright.fullname" . }}
{{- end }}
{{- end }}

{{- define "shardwright.selectorLabels" -}}
app.kubernetes.io/name: {{ include "shardwright.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "shardwright.labels" -}}
{{ include "shardwright.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "shardwright.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "shardwright.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "shardwright.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The namespaces served, as a JSON list; empty in the Cluster scope. */}}
{{- define "shardwright.namespaces" -}}
{{- if eq .Values.scope "Namespaced" }}
{{- default (list .Release.Namespace) .Values.namespaces | uniq | toJson }}
{{- else }}
{{- list | toJson }}
{{- end }}
{{- end }}

{{- define "shardwright.poolNamespace" -}}
{{- default .Release.Namespace .Values.poolConfigMap.namespace }}
{{- end }}

{{/* Rules of the given groups of files/rights.yaml: (dict "root" $ "groups" (list "namespaced")). */}}
{{- define "shardwright.rules" -}}
{{- $rights := .root.Files.Get "files/rights.yaml" | fromYaml }}
{{- $granted := .root.Values.rbac }}
{{- range $group := .groups }}
{{- range index $rights $group }}
{{- if or (not .when) (index $granted (.when | default "")) }}
- apiGroups: {{ .apiGroups | toJson }}
  resources: {{ .resources | toJson }}
  verbs: {{ .verbs | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The role that lets routers read EndpointSlices: of the cluster, or one in each namespace that is served. */}}
{{- define "shardwright.endpointsKind" -}}
{{- ternary "Role" "ClusterRole" (eq .Values.scope "Namespaced") }}
{{- end }}

{{- define "shardwright.endpointsName" -}}
{{- printf "%s-endpoints" (include "shardwright.fullname" .) }}
{{- end }}

{{- define "shardwright.calibrationName" -}}
{{- printf "%s-calibration" (include "shardwright.fullname" .) }}
{{- end }}

{{- define "shardwright.pricesName" -}}
{{- printf "%s-prices" (include "shardwright.fullname" .) }}
{{- end }}

{{- define "shardwright.pricesFile" -}}
{{- dict "prices" .Values.prices | toYaml }}
{{- end }}

{{/* Options about the engines' metrics. */}}
{{- define "shardwright.metricsArgs" -}}
{{- $p := .Values.prometheus }}
{{- $files := "/etc/shardwright/prometheus" }}
{{- if not .Values.engineMetrics.enabled }}
- --engine-metrics
- "off"
{{- else }}
- --engine-metrics-interval
- {{ .Values.engineMetrics.intervalSeconds | quote }}
- --stall-seconds
- {{ .Values.engineMetrics.stallSeconds | quote }}
{{- if $p.url }}
- --prometheus-url
- {{ $p.url | quote }}
- --prometheus-stale
- {{ $p.staleSeconds | quote }}
- --prometheus-namespace-label
- {{ $p.namespaceLabel | quote }}
- --prometheus-pod-label
- {{ $p.podLabel | quote }}
{{- with $p.tenant }}
- --prometheus-tenant
- {{ . | quote }}
{{- end }}
{{- if $p.serviceAccountToken }}
- --prometheus-bearer-token-file
- /var/run/secrets/kubernetes.io/serviceaccount/token
{{- end }}
{{- with $p.secret.bearerTokenKey }}
- --prometheus-bearer-token-file
- {{ printf "%s/%s" $files . | quote }}
{{- end }}
{{- with $p.username }}
- --prometheus-username
- {{ . | quote }}
{{- end }}
{{- range $option, $key := dict "password-file" $p.secret.passwordKey "client-cert-file" $p.secret.clientCertKey "client-key-file" $p.secret.clientKeyKey "ca-file" $p.secret.caKey }}
{{- if $key }}
- --prometheus-{{ $option }}
- {{ printf "%s/%s" $files $key | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.calibrationStore.enabled }}
- --calibration-store
- {{ .Release.Namespace }}/{{ include "shardwright.calibrationName" . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "shardwright.subject" -}}
- kind: ServiceAccount
  name: {{ include "shardwright.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* Values that contradict each other are refused instead of ignored. */}}
{{- define "shardwright.checks" -}}
{{- if eq .Values.scope "Cluster" }}
{{- if .Values.namespaces }}
{{- fail "namespaces is set but scope is Cluster, which serves all of them: set scope to Namespaced or leave namespaces empty" }}
{{- end }}
{{- if not .Values.nodeAccess }}
{{- fail "nodeAccess is false but scope is Cluster: set scope to Namespaced, which can do without nodes, or nodeAccess to true" }}
{{- end }}
{{- else if and (not .Values.nodeAccess) (not .Values.poolConfigMap.name) }}
{{- fail "nodeAccess is false, so the operator cannot read nodes: set poolConfigMap.name to a ConfigMap that declares them (docs/install.md, \"Without access to nodes\")" }}
{{- end }}
{{- $p := .Values.prometheus }}
{{- $keys := compact (list $p.secret.bearerTokenKey $p.secret.passwordKey $p.secret.clientCertKey $p.secret.clientKeyKey $p.secret.caKey) }}
{{- if and $keys (not $p.secret.name) }}
{{- fail "prometheus.secret names keys but no Secret: set prometheus.secret.name" }}
{{- end }}
{{- if and (or $keys $p.tenant $p.username $p.serviceAccountToken) (not $p.url) }}
{{- fail "a login to Prometheus is set but no address: set prometheus.url" }}
{{- end }}
{{- if and $p.serviceAccountToken $p.secret.bearerTokenKey }}
{{- fail "prometheus.serviceAccountToken and prometheus.secret.bearerTokenKey are both set: choose one" }}
{{- end }}
{{- if ne (empty $p.username) (empty $p.secret.passwordKey) }}
{{- fail "prometheus.username and prometheus.secret.passwordKey go together" }}
{{- end }}
{{- if ne (empty $p.secret.clientCertKey) (empty $p.secret.clientKeyKey) }}
{{- fail "prometheus.secret.clientCertKey and prometheus.secret.clientKeyKey go together" }}
{{- end }}
{{- if and (not .Values.engineMetrics.enabled) (or $p.url .Values.calibrationStore.enabled) }}
{{- fail "engineMetrics.enabled is false, so nothing is read: leave prometheus.url and calibrationStore.enabled unset, or enable it" }}
{{- end }}
{{- if and .Values.nodeAccess .Values.poolConfigMap.name }}
{{- fail "poolConfigMap.name is set but nodeAccess is true: set nodeAccess to false to plan on declared nodes, or leave the name empty" }}
{{- end }}
{{- end }}
