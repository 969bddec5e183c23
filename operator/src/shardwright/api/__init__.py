"""The LLMService resource: its fields, conditions and reasons, and the CRD made from them. Pure."""
