package shm_test

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/plane/liar"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

func TestLies(t *testing.T) { planetest.RunLies(t, shm.Open, liar.SHMLies()) }
