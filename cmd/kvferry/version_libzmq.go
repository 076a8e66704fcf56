//go:build cgo

package main

import (
	"fmt"

	"github.com/pebbe/zmq4"
)

func libzmqVersion() string {
	major, minor, patch := zmq4.Version()
	return fmt.Sprintf("%d.%d.%d", major, minor, patch)
}
