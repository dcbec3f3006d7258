import type { ComponentChildren } from 'preact'

interface CheckProps {
  readonly label: ComponentChildren
  readonly isChecked: boolean
  readonly set: (isChecked: boolean) => void
  readonly type?: 'checkbox' | 'radio'
}

/** A labelled check box or radio button. */
export function Check({ isChecked, label, set, type = 'checkbox' }: CheckProps) {
  return (
    <label class="check">
      <input type={type} checked={isChecked} onChange={(event) => set(event.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  )
}
