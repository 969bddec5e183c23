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
{{- if and .Values.nodeAccess .Values.poolConfigMap.name }}
{{- fail "poolConfigMap.name is set but nodeAccess is true: set nodeAccess to false to plan on declared nodes, or leave the name empty" }}
{{- end }}
{{- end }}
