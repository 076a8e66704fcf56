package shm_test

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

func TestMain(m *testing.M) { planetest.Main(m, shm.Open) }

func TestContract(t *testing.T) { planetest.Run(t, shm.Open) }

func BenchmarkPush64x1MiB(b *testing.B) { planetest.Bench(b, shm.Open) }

func BenchmarkPush4KiB(b *testing.B) { planetest.BenchSmall(b, shm.Open) }
