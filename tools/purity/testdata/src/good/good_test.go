package good

import (
	"testing"
	"time"
)

// Tests are drivers: they may do what machines may not.
func TestStep(t *testing.T) {
	done := make(chan float64)
	go func() { done <- time.Since(time.Now()).Seconds() }()
	<-done
}
