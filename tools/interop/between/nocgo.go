//go:build !cgo || !linux

// Command between needs cgo.
package main

func main() { panic("built without cgo") }
