# The software NPU: make -f softnpu.mk OUT=<directory> [FLAGS=-fsanitize=...] [HIDE="symbol ..."]
# builds OUT/libcannemu.so; "checks" builds the check programs as well. Only the specification's symbols and
# cannemu_* are exported. HIDE leaves some of them out, which makes a library of an older CANN.
ifeq ($(origin CC),default)
CC    := gcc
endif
HERE  := $(dir $(lastword $(MAKEFILE_LIST)))
OUT   ?= $(HERE)../../.cache/softnpu/plain
FLAGS ?=
HIDE  ?=

COMPILE := $(CC) -std=gnu11 -D_GNU_SOURCE -O2 -g -fPIC -pthread -Wall -Wextra -Werror $(FLAGS)
OBJECTS := $(patsubst $(HERE)src/%.c,$(OUT)/src/%.o,$(wildcard $(HERE)src/*.c))
CHECKED := $(patsubst $(HERE)check/%.c,$(OUT)/check/%.o,$(wildcard $(HERE)check/*.c))

.PHONY: library checks
library: $(OUT)/libcannemu.so
checks: library $(OUT)/aclcheck $(OUT)/hcclcheck

$(OUT)/libcannemu.so: $(OBJECTS) $(HERE)src/exports.map $(HERE)softnpu.mk
	@sed -e '' $(foreach symbol,$(HIDE),-e 's/ $(symbol);/ /') $(HERE)src/exports.map > $(OUT)/exports.map
	@$(CC) -shared -pthread $(FLAGS) -Wl,--version-script=$(OUT)/exports.map -Wl,-soname,libcannemu.so -o $@ $(OBJECTS)

$(OUT)/aclcheck: $(filter $(OUT)/check/acl%,$(CHECKED))
$(OUT)/hcclcheck: $(filter $(OUT)/check/hccl%,$(CHECKED))
$(OUT)/aclcheck $(OUT)/hcclcheck: $(OUT)/check/check.o $(OUT)/libcannemu.so
	@$(CC) -pthread $(FLAGS) -o $@ $(filter %.o,$^) -L$(OUT) -lcannemu -Wl,-rpath,$(OUT)

$(OUT)/%.o: $(HERE)%.c $(wildcard $(HERE)src/*.h $(HERE)check/*.h) $(HERE)softnpu.mk
	@mkdir -p $(@D)
	@$(COMPILE) -c -o $@ $<
