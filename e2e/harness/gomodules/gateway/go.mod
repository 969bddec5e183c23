module shardwright.test/harness/gateway

go 1.25.0

require (
	sigs.k8s.io/gateway-api v1.4.1
	sigs.k8s.io/gateway-api-inference-extension v1.3.0
)
