//go:build !cgo || !linux

package hccltest
