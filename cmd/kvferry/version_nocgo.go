//go:build !cgo

package main

func libzmqVersion() string { return "" }
