// Package files holds a test that the Makefile and its scripts remove and overwrite nothing that they did not make.
package files
