//go:build tools

// Package tools names the programs this module exists to build, so that
// go.mod and go.sum pin every dependency of them.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
)
