"""The parts of the amdgpu collector."""
