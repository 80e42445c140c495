# SPDX-License-Identifier: Apache-2.0
TARGETS := one two three four
.PHONY: all $(TARGETS)
all: $(TARGETS)
$(TARGETS):
	$(TOOLS)/compile work 0.2 | $(TOOLS)/assemble >/dev/null
	printf x >>$(MADE)
